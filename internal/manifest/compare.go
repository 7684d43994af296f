package manifest

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
)

// Change is what a new manifest means to clients of an old one.
type Change struct {
	// Breaking lists what a client of the old contract may trip over, and Added everything else that differs.
	Breaking, Added []string
}

// None tells whether nothing changed.
func (c Change) None() bool { return len(c.Breaking)+len(c.Added) == 0 }

// Compare tells what changed from old to next, revisions aside. What is not known to be harmless counts as breaking.
func Compare(old, next canonjson.Value) Change {
	var c Change
	if o, n := old.Get("contract").Str(), next.Get("contract").Str(); o != n {
		c.Added = append(c.Added, fmt.Sprintf("the contract is %s, another one than %s", n, o))
		return c
	}
	c.lists("tool", "name", old.Get("tools"), next.Get("tools"), c.tool)
	c.lists("resource", "uri", old.Get("resources"), next.Get("resources"), c.content)
	c.lists("template", "uriTemplate", old.Get("resourceTemplates"), next.Get("resourceTemplates"), c.content)
	c.lists("route", "path", old.Get("transferRoutes"), next.Get("transferRoutes"), c.exact)
	c.lists("error code", "code", old.Get("errorCodes"), next.Get("errorCodes"), c.exact)
	c.codes(old.Get("httpStatus"), next.Get("httpStatus"))
	c.failure(old.Get("errorSchema"), next.Get("errorSchema"))
	if c.None() && !equal(old.Without("revision"), next.Without("revision")) {
		c.Added = append(c.Added, "something that breaks nobody differs")
	}
	return c
}

// lists compares two lists of things that have a name: what is gone breaks, what is new is an addition, and same judges
// what is in both.
func (c *Change) lists(what, key string, old, next canonjson.Value, same func(where string, old, next canonjson.Value)) {
	find := func(list canonjson.Value, name string) canonjson.Value {
		for _, item := range list.Items() {
			if item.Get(key).Str() == name {
				return item
			}
		}
		return canonjson.Value{}
	}
	for _, o := range old.Items() {
		name := o.Get(key).Str()
		n := find(next, name)
		if n.IsAbsent() {
			c.Breaking = append(c.Breaking, fmt.Sprintf("%s %s is gone", what, name))
			continue
		}
		same(what+" "+name, o, n)
	}
	for _, n := range next.Items() {
		if name := n.Get(key).Str(); find(old, name).IsAbsent() {
			c.Added = append(c.Added, fmt.Sprintf("%s %s is new", what, name))
		}
	}
}

// tool compares a tool: its schemas, and its words and hints, which break nobody.
func (c *Change) tool(where string, old, next canonjson.Value) {
	c.input(where+", input", old.Get("inputSchema"), next.Get("inputSchema"))
	c.output(where+", output", old.Get("outputSchema"), next.Get("outputSchema"))
	for _, name := range []string{"title", "description", "annotations"} {
		if !equal(old.Get(name), next.Get(name)) {
			c.Added = append(c.Added, where+": another "+name)
		}
	}
	if !equal(old.Get("check"), next.Get("check")) {
		c.Breaking = append(c.Breaking, where+": it needs another capability")
	}
}

// content compares a resource.
func (c *Change) content(where string, old, next canonjson.Value) {
	c.output(where, old.Get("contentSchema"), next.Get("contentSchema"))
	if !equal(old.Get("mimeType"), next.Get("mimeType")) {
		c.Breaking = append(c.Breaking, where+": another media type")
	}
	if !equal(old.Get("name"), next.Get("name")) {
		c.Added = append(c.Added, where+": another name")
	}
}

// exact wants no difference.
func (c *Change) exact(where string, old, next canonjson.Value) {
	if !equal(old, next) {
		c.Breaking = append(c.Breaking, where+" differs")
	}
}

// codes compares statuses by code.
func (c *Change) codes(old, next canonjson.Value) {
	for _, m := range old.Members() {
		if !equal(m.Value, next.Get(m.Name)) {
			c.Breaking = append(c.Breaking, "the HTTP status of "+m.Name+" differs")
		}
	}
}

// codesAt is where the codes stand in the schema of failures.
const codesAt = "/properties/error/properties/code/enum"

// failure compares the schema of failures: codes may come to it, and nothing else may change.
func (c *Change) failure(old, next canonjson.Value) {
	for _, o := range old.At(codesAt).Items() {
		if !has(next.At(codesAt), o) {
			c.Breaking = append(c.Breaking, "the error code "+o.Str()+" is gone")
		}
	}
	for _, n := range next.At(codesAt).Items() {
		if !has(old.At(codesAt), n) {
			c.Added = append(c.Added, "the error code "+n.Str()+" is new")
		}
	}
	if !equal(without(old, "properties", "error", "properties", "code", "enum"), without(next, "properties", "error", "properties", "code", "enum")) {
		c.Breaking = append(c.Breaking, "the schema of failures differs beside its codes")
	}
}

// without is v without the member that path leads to.
func without(v canonjson.Value, path ...string) canonjson.Value {
	if len(path) == 1 {
		return v.Without(path[0])
	}
	members := v.Members()
	out := make([]canonjson.Member, len(members))
	for i, m := range members {
		out[i] = m
		if m.Name == path[0] {
			out[i].Value = without(m.Value, path[1:]...)
		}
	}
	return canonjson.Object(out...)
}

// input compares what a client sends: a property may come that need not be sent, and one may become optional.
func (c *Change) input(where string, old, next canonjson.Value) {
	for _, r := range next.Get("required").Items() {
		if !has(old.Get("required"), r) {
			c.Breaking = append(c.Breaking, fmt.Sprintf("%s: %s must be sent", where, r.Str()))
		}
	}
	for _, r := range old.Get("required").Items() {
		if !has(next.Get("required"), r) {
			c.Added = append(c.Added, fmt.Sprintf("%s: %s need not be sent any more", where, r.Str()))
		}
	}
	c.properties(where, old, next)
}

// output compares what a client reads: a property may come, and none may go or become optional.
func (c *Change) output(where string, old, next canonjson.Value) {
	for _, r := range old.Get("required").Items() {
		if !has(next.Get("required"), r) {
			c.Breaking = append(c.Breaking, fmt.Sprintf("%s: %s need not be there any more", where, r.Str()))
		}
	}
	c.properties(where, old, next)
}

// properties compares the properties of two object schemas. What is behind a reference is compared as a whole.
func (c *Change) properties(where string, old, next canonjson.Value) {
	for _, m := range old.Get("properties").Members() {
		switch n := next.Get("properties").Get(m.Name); {
		case n.IsAbsent():
			c.Breaking = append(c.Breaking, fmt.Sprintf("%s: %s is gone", where, m.Name))
		case !equal(m.Value, n):
			c.Breaking = append(c.Breaking, fmt.Sprintf("%s: %s differs", where, m.Name))
		}
	}
	for _, m := range next.Get("properties").Members() {
		if old.Get("properties").Get(m.Name).IsAbsent() {
			c.Added = append(c.Added, fmt.Sprintf("%s: %s is new", where, m.Name))
		}
	}
	for _, m := range old.Get("$defs").Members() {
		if n := next.Get("$defs").Get(m.Name); !equal(m.Value, n) {
			c.Breaking = append(c.Breaking, fmt.Sprintf("%s: the definition %s differs", where, m.Name))
		}
	}
	if rest := []string{"properties", "required", "$defs"}; !equal(old.Without(rest...), next.Without(rest...)) {
		c.Breaking = append(c.Breaking, where+": the schema differs beside its properties")
	}
}

// has tells whether a list holds v.
func has(list, v canonjson.Value) bool {
	return slices.ContainsFunc(list.Items(), func(item canonjson.Value) bool { return equal(item, v) })
}

// equal compares JSON values; the order of members does not count.
func equal(a, b canonjson.Value) bool {
	if a.IsAbsent() || b.IsAbsent() {
		return a.IsAbsent() == b.IsAbsent()
	}
	return bytes.Equal(a.AppendCanonical(nil), b.AppendCanonical(nil))
}
