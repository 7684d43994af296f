package tools

import (
	"context"
	"strings"

	"github.com/tabellion-mcp/tabellion/internal/catalog"
	"github.com/tabellion-mcp/tabellion/internal/identity"
	"github.com/tabellion-mcp/tabellion/model"
	"github.com/tabellion-mcp/tabellion/policy"
)

// ofModel makes the operations of one model.
func (t *Tools) ofModel(m *model.Model) []*catalog.Operation {
	var ops []*catalog.Operation
	if !m.Keyless {
		ops = append(ops, t.get(m))
	}
	ops = append(ops, t.list(m))
	if t.writable(m) {
		ops = append(ops, t.create(m), t.update(m), t.remove(m))
	}
	return ops
}

// reading makes a read of m.
func (t *Tools) reading(m *model.Model, verb, title, does string) *catalog.Operation {
	op := &catalog.Operation{
		Name: verb + "_" + m.Name, Title: title + " " + m.Name, Doc: doc(m, does),
		Capability: policy.ModelsRead, KnownOn: knownOn(string(path(m.Name))), Targets: checking(policy.ModelsRead, m.Name),
		Effects: catalog.Effects{ReadOnly: catalog.Yes}, Bounds: catalog.Bounds{Deadline: readWithin},
	}
	op.Listing = func(who *identity.Principal) (catalog.Listing, bool) {
		a := t.access(who)
		if a != nil && (a.Read(m) != nil || verb == "get" && !locates(a, m)) {
			return catalog.Listing{}, false
		}
		l := op.Full()
		l.Output = t.rowOutput(m, a, verb == "list")
		return l, true
	}
	op.Publish.Output = t.rowOutput(m, nil, verb == "list")
	return op
}

// get is get_X.
func (t *Tools) get(m *model.Model) *catalog.Operation {
	op := t.reading(m, "get", "Get", "Gives one row by its id, with its fields and computed columns.")
	op.In, op.Out, op.Publish.Input = inGet, outRow, schema(object(properties{{"id", idSchema(m)}}, "id"))
	op.Run = func(ctx context.Context, call *catalog.Call) (catalog.Result, error) {
		return t.answer(ctx, call, func(c *caller) (catalog.Result, error) { return c.get(ctx, m, call.In.Get("id"), "") })
	}
	return op
}

// list is list_X.
func (t *Tools) list(m *model.Model) *catalog.Operation {
	op := t.reading(m, "list", "List", "Lists rows. q is the query behind the model's name: ($condition: @c, $sort: @s) { field, relation { field } }; values stand in params.")
	op.In, op.Out, op.Content = inList, outRows, []string{"params"}
	op.Run = func(ctx context.Context, call *catalog.Call) (catalog.Result, error) {
		return t.answer(ctx, call, func(c *caller) (catalog.Result, error) {
			q := call.In.Get("q").Str()
			if q == "" {
				return c.list(ctx, m.Name+c.projection(m), call.In.Get("params"))
			}
			return c.list(ctx, behind(m.Name, q), call.In.Get("params"))
		})
	}
	return op
}

// behind puts q behind the name of a model. A q that begins like a name must not make another name of it: list_Course with
// Deleted { title } would be a query on CourseDeleted.
func behind(name, q string) string {
	if strings.IndexByte(" \t\r\n({-", q[0]) < 0 {
		return name + " " + q // which is no query, and refused as that
	}
	return name + q
}

// writing makes a write of m.
func (t *Tools) writing(m *model.Model, action model.Action, verb, title, does string) *catalog.Operation {
	op := &catalog.Operation{
		Name: verb + "_" + m.Name, Title: title + " " + m.Name, Doc: doc(m, does),
		Capability: policy.ModelsWrite, KnownOn: knownOn(string(path(m.Name))), Targets: checking(policy.ModelsWrite, m.Name),
		Effects: catalog.Effects{ReadOnly: catalog.No, Invalidates: []string{"get_" + m.Name, "list_" + m.Name, "query"}},
		Bounds:  catalog.Bounds{Deadline: readWithin}, Outside: true,
	}
	input, output := t.input(m, nil, action), t.rowOutput(m, nil, false)
	if action == model.ActRemove {
		output = removedOutput
	}
	op.Publish.Input, op.Publish.Output = input, output
	op.Listing = func(who *identity.Principal) (catalog.Listing, bool) {
		a := t.access(who)
		if a == nil {
			return op.Full(), true
		}
		if a.Write(m, action, false) != nil || action != model.ActInsert && !locates(a, m) {
			return catalog.Listing{}, false
		}
		l := op.Full()
		l.Input = t.input(m, a, action)
		if action != model.ActRemove {
			l.Output = t.rowOutput(m, a, false)
		}
		return l, true
	}
	return op
}

// create is create_X.
func (t *Tools) create(m *model.Model) *catalog.Operation {
	op := t.writing(m, model.ActInsert, "create", "Create", "Adds one row and gives it back.")
	op.In, op.Out, op.Content = inCreate, outRow, []string{"body"}
	op.Effects.Destructive = catalog.No
	op.Run = func(ctx context.Context, call *catalog.Call) (catalog.Result, error) {
		return t.answer(ctx, call, func(c *caller) (catalog.Result, error) { return c.create(ctx, m.Name, call.In.Get("body")) })
	}
	return op
}

// update is update_X.
func (t *Tools) update(m *model.Model) *catalog.Operation {
	op := t.writing(m, model.ActUpdate, "update", "Update", "Changes fields of one row and gives it back, or null when there is no such row.")
	op.In, op.Out, op.Content = inUpdate, outRow, []string{"set"}
	op.Run = func(ctx context.Context, call *catalog.Call) (catalog.Result, error) {
		return t.answer(ctx, call, func(c *caller) (catalog.Result, error) { return c.update(ctx, m) })
	}
	return op
}

// remove is delete_X.
func (t *Tools) remove(m *model.Model) *catalog.Operation {
	does := "Removes one row; it stays in the archive."
	if m.Archive == nil {
		does = "Removes one row for good."
	}
	op := t.writing(m, model.ActRemove, "delete", "Delete", does)
	op.In, op.Out = inDelete, outRemoved
	op.Effects.Destructive, op.Effects.Idempotent = catalog.Yes, catalog.Yes
	op.Run = func(ctx context.Context, call *catalog.Call) (catalog.Result, error) {
		return t.answer(ctx, call, func(c *caller) (catalog.Result, error) { return c.remove(ctx, m) })
	}
	return op
}

// doc is the description of a model's tool: the model's own, or a made sentence, and what the tool does.
func doc(m *model.Model, does string) string {
	words := strings.TrimSpace(m.Description)
	if words == "" {
		words = "Rows of the model " + m.Name
	}
	if !strings.HasSuffix(words, ".") {
		words += "."
	}
	return words + " " + does
}

// locates tells whether somebody may name a row by its id.
func locates(a *model.Access, m *model.Model) bool {
	f := m.Field(m.IDField)
	return f == nil || a.ReadField(m, f)
}

// versioned tells whether somebody may name the version that a row must have; nil is the full surface.
func versioned(a *model.Access, m *model.Model) bool {
	return m.VersionOf != nil && (a == nil || a.ReadField(m, m.VersionOf))
}
