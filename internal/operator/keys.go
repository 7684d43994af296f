package operator

import (
	"context"

	"github.com/tabellion-mcp/tabellion/fault"
	"github.com/tabellion-mcp/tabellion/internal/audit"
	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/catalog"
	"github.com/tabellion-mcp/tabellion/internal/identity"
	"github.com/tabellion-mcp/tabellion/policy"
)

// keySchema describes a stored key: everything but its digest.
const keySchema = `{"type":"object","additionalProperties":false,
"required":["id","user","name","hint","roles","live","createdAt","useCount"],
"properties":{
 "id":{"type":"string","pattern":"^[0-9a-f]{12}$"},
 "user":{"type":"string"},"name":{"type":"string"},
 "hint":{"type":"string","description":"The first characters of the key after its prefix."},
 "roles":{"type":"array","items":{"type":"string"}},
 "only":{"type":"array","items":{"type":"string"},"description":"Scopes, capability@pattern. Absent: the key is not narrowed."},
 "tenant":{"type":"string"},
 "workspaces":{"type":"array","items":{"type":"string"}},
 "live":{"type":"boolean","description":"Neither revoked nor expired."},
 "createdAt":{"type":"string","format":"date-time"},
 "expiresAt":{"type":"string","format":"date-time","description":"Absent: never."},
 "revokedAt":{"type":"string","format":"date-time"},
 "reason":{"type":"string","description":"Of the revocation."},
 "rotatedTo":{"type":"string","description":"Id of the key that replaces this one."},
 "lastUsedAt":{"type":"string","format":"date-time","description":"At most a minute behind."},
 "useCount":{"type":"integer","minimum":0}}}`

// madeSchema describes a key that was just made, with its text.
const madeSchema = `{"type":"object","additionalProperties":false,"required":["key","secret","notes"],"properties":{
 "key":` + keySchema + `,
 "secret":{"type":"string","description":"The key itself. It is shown this once and not kept."},
 "notes":{"type":"array","items":{"type":"string"}}}}`

// The input schemas.
const (
	// The service says what is wrong with an id, a user and a name, in words for people; the schemas only bound them.
	idProperty = `"id":{"type":"string","maxLength":1024,"description":"The key's id, as keys list shows it."}`

	createIn = `{"type":"object","additionalProperties":false,"required":["user","name"],"properties":{
 "user":{"type":"string","maxLength":1024,"description":"Whom the key acts as: subject user:<user>."},
 "name":{"type":"string","maxLength":1024,"description":"What the key is for."},
 "roles":{"type":"array","maxItems":64,"items":{"type":"string"}},
 "only":{"type":"array","minItems":1,"maxItems":64,"items":{"type":"string"},"description":"Narrows the key to these scopes, capability@pattern."},
 "tenant":{"type":"string"},
 "workspaces":{"type":"array","maxItems":64,"items":{"type":"string"},"description":"Not part of this version: refused."},
 "expires":{"type":"string","description":"90d, 12h, 30m, or a time in RFC 3339. Absent: never."}}}`

	listIn = `{"type":"object","additionalProperties":false,"properties":{
 "user":{"type":"string","description":"Keys of this user only."},
 "live":{"type":"boolean","description":"true: keys that can be used only."}}}`

	showIn = `{"type":"object","additionalProperties":false,"required":["id"],"properties":{` + idProperty + `}}`

	revokeIn = `{"type":"object","additionalProperties":false,"required":["id"],"properties":{` + idProperty + `,
 "reason":{"type":"string","maxLength":200}}}`

	rotateIn = `{"type":"object","additionalProperties":false,"required":["id"],"properties":{` + idProperty + `,
 "grace":{"type":"string","description":"How long the old key stays good: 24h when absent, 0h for not at all."},
 "expires":{"type":"string","description":"Of the new key. Absent: as long from now as the old key's whole life."}}}`

	pruneIn = `{"type":"object","additionalProperties":false,"properties":{
 "age":{"type":"string","description":"Keys that have been dead for longer than this: 30d when absent."}}}`
)

// The output schemas.
const (
	listOut  = `{"type":"object","additionalProperties":false,"required":["keys"],"properties":{"keys":{"type":"array","items":` + keySchema + `}}}`
	pruneOut = `{"type":"object","additionalProperties":false,"required":["ids"],"properties":{"ids":{"type":"array","items":{"type":"string"}}}}`
)

// keys are the operations on API keys.
type keys struct {
	service *identity.KeyService
	policy  *policy.Config // nil: no section
	open    bool           // --dev
}

// keyOperations lists the operations on API keys.
func keyOperations(cfg Config) []*catalog.Operation {
	s := cfg.Keys
	k := keys{s, cfg.Policy, cfg.Open}
	ops := []*catalog.Operation{
		{Name: "operator.keys.create", Title: "Make an API key", Effects: creates, Capability: policy.OperatorAdmin,
			Doc: "Makes an API key for a user and gives its text, once.",
			In:  catalog.MustSchema(createIn), Out: catalog.MustSchema(madeSchema), Run: k.create},
		{Name: "operator.keys.list", Title: "List API keys", Effects: reads, Capability: policy.OperatorRead,
			Doc: "Lists keys, oldest first, those that were revoked or have expired too.",
			In:  catalog.MustSchema(listIn), Out: catalog.MustSchema(listOut), Run: k.list},
		{Name: "operator.keys.show", Title: "Show an API key", Effects: reads, Capability: policy.OperatorRead,
			Doc: "Shows what is kept of one key.",
			In:  catalog.MustSchema(showIn), Out: catalog.MustSchema(keySchema), Run: k.show},
		{Name: "operator.keys.revoke", Title: "Revoke an API key", Effects: ends, Capability: policy.OperatorAdmin,
			Doc: "Ends a key: in this process at once, in others within 5 seconds. A revoked key stays as it is.",
			In:  catalog.MustSchema(revokeIn), Out: catalog.MustSchema(keySchema), Run: k.revoke},
		{Name: "operator.keys.rotate", Title: "Rotate an API key", Effects: rotates, Capability: policy.OperatorAdmin,
			Doc: "Makes a key with the same rights; the old one ends after a grace.",
			In:  catalog.MustSchema(rotateIn), Out: catalog.MustSchema(madeSchema), Run: k.rotate},
		{Name: "operator.keys.prune", Title: "Forget dead API keys", Effects: ends, Capability: policy.OperatorAdmin,
			Doc: "Forgets keys that were revoked or had expired long ago.",
			In:  catalog.MustSchema(pruneIn), Out: catalog.MustSchema(pruneOut), Run: k.prune},
	}
	for _, op := range ops {
		op.Targets = on(op.Capability, keysPath)
		run := op.Run
		op.Run = func(ctx context.Context, c *catalog.Call) (catalog.Result, error) {
			if s == nil {
				return catalog.Result{}, absent("the keys")
			}
			return run(ctx, c)
		}
	}
	return ops
}

// row makes the audit row that is committed with the change of a key. It is the gate's entry, with the key as target.
func row(c *catalog.Call) identity.RowFunc {
	return func(id, note string) audit.Row {
		c.Commit.Entry.Kind, c.Commit.Entry.Note = audit.KindKey, note
		if id != "" {
			c.Commit.Entry.Target = string(keysPath) + "/" + id
		}
		return c.Commit.Seal()
	}
}

// create runs operator.keys.create.
func (k keys) create(ctx context.Context, c *catalog.Call) (catalog.Result, error) {
	if c.In.Get("workspaces").Len() > 0 {
		return catalog.Result{}, fault.New(fault.UnsupportedFormat, "workspaces are not part of this version: nothing would be kept apart by them")
	}
	made, err := k.service.Create(ctx, identity.KeySpec{
		User: c.In.Get("user").Str(), Name: c.In.Get("name").Str(), Roles: stringsOf(c.In.Get("roles")),
		Only: stringsOf(c.In.Get("only")), Tenant: c.In.Get("tenant").Str(), Expires: c.In.Get("expires").Str(),
	}, row(c))
	if err == nil {
		made.Notes = append(made.Notes, k.notes(&made.Key)...)
	}
	return madeResult(c, made), err
}

// list runs operator.keys.list.
func (k keys) list(ctx context.Context, c *catalog.Call) (catalog.Result, error) {
	all, err := k.service.List(ctx)
	user, onlyLive := c.In.Get("user"), c.In.Get("live").Bool()
	items := make([]canonjson.Value, 0, len(all))
	for i := range all {
		if (user.IsAbsent() || user.Str() == all[i].User) && (!onlyLive || all[i].Live(c.Now)) {
			items = append(items, keyValue(c, &all[i]))
		}
	}
	return catalog.Result{Value: canonjson.Object(canonjson.M("keys", canonjson.Array(items...))), Count: len(items)}, err
}

// show runs operator.keys.show.
func (k keys) show(ctx context.Context, c *catalog.Call) (catalog.Result, error) {
	key, err := k.service.Show(ctx, c.In.Get("id").Str())
	return catalog.Result{Value: keyValue(c, &key)}, err
}

// revoke runs operator.keys.revoke.
func (k keys) revoke(ctx context.Context, c *catalog.Call) (catalog.Result, error) {
	key, changed, err := k.service.Revoke(ctx, c.In.Get("id").Str(), c.In.Get("reason").Str(), row(c))
	return catalog.Result{Value: keyValue(c, &key), Replayed: !changed}, err
}

// rotate runs operator.keys.rotate.
func (k keys) rotate(ctx context.Context, c *catalog.Call) (catalog.Result, error) {
	made, err := k.service.Rotate(ctx, c.In.Get("id").Str(), identity.Rotation{
		Grace: c.In.Get("grace").Str(), Expires: c.In.Get("expires").Str(),
	}, row(c))
	return madeResult(c, made), err
}

// prune runs operator.keys.prune.
func (k keys) prune(ctx context.Context, c *catalog.Call) (catalog.Result, error) {
	ids, err := k.service.Prune(ctx, c.In.Get("age").Str(), row(c))
	return catalog.Result{Value: canonjson.Object(canonjson.M("ids", list(ids))), Count: len(ids)}, err
}

// madeResult shows a key that was made, with its text.
func madeResult(c *catalog.Call, made identity.NewKey) catalog.Result {
	return catalog.Result{Value: canonjson.Object(
		canonjson.M("key", keyValue(c, &made.Key)),
		canonjson.M("secret", canonjson.String(made.Text)),
		canonjson.M("notes", list(made.Notes)))}
}

// keyValue shows a stored key.
func keyValue(c *catalog.Call, k *identity.Key) canonjson.Value {
	m := []canonjson.Member{
		canonjson.M("id", canonjson.String(k.ID)),
		canonjson.M("user", canonjson.String(k.User)),
		canonjson.M("name", canonjson.String(k.Name)),
		canonjson.M("hint", canonjson.String(k.Hint)),
		canonjson.M("roles", list(k.Roles)),
		canonjson.M("tenant", text(k.Tenant)),
		canonjson.M("live", canonjson.Bool(k.Live(c.Now))),
		canonjson.M("createdAt", timeText(k.CreatedAt)),
		canonjson.M("expiresAt", timeText(k.ExpiresAt)),
		canonjson.M("revokedAt", timeText(k.RevokedAt)),
		canonjson.M("reason", text(k.Reason)),
		canonjson.M("rotatedTo", text(k.RotatedTo)),
		canonjson.M("lastUsedAt", timeText(k.LastUsedAt)),
		canonjson.M("useCount", canonjson.Int(k.UseCount)),
	}
	if k.Only != nil {
		m = append(m, canonjson.M("only", list(k.Only)))
	}
	if len(k.Workspaces) > 0 {
		m = append(m, canonjson.M("workspaces", list(k.Workspaces)))
	}
	return canonjson.Object(m...)
}
