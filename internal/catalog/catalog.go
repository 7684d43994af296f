package catalog

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"strings"
	"sync"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/identity"
	"github.com/tabellion-mcp/tabellion/policy"
)

// Endpoint is what one URL path (or one stdio connection) serves: a slot, or everything published.
type Endpoint string

// All is the endpoint of every published slot: /mcp.
const All Endpoint = "all"

// Of is the endpoint that serves one slot: /persistence/mcp.
func Of(s Slot) Endpoint { return Endpoint(s) }

// includes tells whether the endpoint serves the slot.
func (e Endpoint) includes(s Slot) bool {
	return s != Operator && (e == All || Endpoint(s) == e)
}

// Names is how tool names are written on the wire.
type Names string

// The forms of tool names.
const (
	ContractNames Names = "contract" // persistence.get
	PortableNames Names = "portable" // persistence_get, for clients that refuse dots
)

// Catalog holds the operations of a server, in order. It is immutable after New and safe for concurrent use.
type Catalog struct {
	ops    []*Operation
	byName map[string]*Operation
	names  Names
	// audiences are those of the operations, each once, in their order.
	audiences []*Audience

	mu    sync.Mutex
	views map[viewKey]*View
	bytes int // of the tools of views
}

// maxViews and maxViewBytes bound the kept views; all are dropped beyond them. A view is a few tens of kilobytes, and with
// hundreds of models megabytes.
const (
	maxViews     = 256
	maxViewBytes = 64 << 20
)

// New checks and collects operations. Two operations of one name, a tool without schemas, a confirmation without
// a preview, and a name that two portable forms share are refused, with both origins named.
func New(names Names, ops ...*Operation) (*Catalog, error) {
	c := &Catalog{byName: map[string]*Operation{}, names: names, views: map[viewKey]*View{}}
	for _, op := range ops {
		if err := checkOperation(op); err != nil {
			return nil, fmt.Errorf("operation %s.%s: %w", op.Slot, op.Name, err)
		}
		for _, name := range []string{op.Name, c.WireName(op)} {
			if other := c.byName[name]; other != nil && other != op {
				return nil, fmt.Errorf("two operations are called %q: one of slot %s and one of slot %s; rename one, or set models.prefix", name, other.Slot, op.Slot)
			}
			c.byName[name] = op
		}
		if op.Audience != nil && !slices.Contains(c.audiences, op.Audience) {
			c.audiences = append(c.audiences, op.Audience)
		}
		c.ops = append(c.ops, op)
	}
	return c, c.checkAliases()
}

// checkAliases refuses two tools of one name on the endpoint of a slot.
func (c *Catalog) checkAliases() error {
	type place struct {
		slot Slot
		name string
	}
	seen := map[place]*Operation{}
	for _, op := range c.ops {
		p := place{op.Slot, c.nameOn(op, Of(op.Slot))}
		if other := seen[p]; other != nil && op.Publish.Tool && other.Publish.Tool {
			return fmt.Errorf("two tools of slot %s are called %q: %s and %s", op.Slot, p.name, other.Name, op.Name)
		}
		seen[p] = op
	}
	return nil
}

// checkOperation refuses an operation that cannot keep its promises.
func checkOperation(op *Operation) error {
	switch {
	case op.Name == "" || op.Slot == "":
		return fmt.Errorf("it needs a name and a slot")
	case op.Run == nil:
		return fmt.Errorf("it has no Run")
	case op.In == nil:
		return fmt.Errorf("it has no input schema")
	case op.Confirm != nil && op.Preview == nil:
		return fmt.Errorf("Confirm is set and Preview is not")
	case op.Slot == Operator && (op.Publish.Tool || op.Publish.Prompt != nil || len(op.Publish.Resources) > 0):
		return fmt.Errorf("slot operator is published to no client")
	case op.Capability != "" && op.Targets == nil:
		return fmt.Errorf("it needs the capability %s and names no targets", op.Capability)
	case op.Outside && op.Effects.ReadOnly == Yes:
		return fmt.Errorf("it is declared read-only, and its effect is outside")
	case (op.Audience == nil) != (op.Listing == nil):
		return fmt.Errorf("Audience and Listing go together")
	case op.Effects.ReadOnly == Yes && op.Effects.Destructive == Yes:
		return fmt.Errorf("it is declared read-only and destructive")
	}
	return nil
}

// Warm compiles every schema, so that no first call waits for it. It returns the first that does not compile.
func (c *Catalog) Warm() error {
	for _, op := range c.ops {
		for _, s := range []*Schema{op.In, op.Out, op.Publish.Input, op.Publish.Output} {
			if s == nil {
				continue
			}
			if _, err := s.compile(); err != nil {
				return fmt.Errorf("operation %s.%s: %w", op.Slot, op.Name, err)
			}
		}
	}
	return nil
}

// Operations lists all operations in catalog order. The caller must not change the slice.
func (c *Catalog) Operations() []*Operation { return c.ops }

// Operation finds an operation by its own or its wire name, published or not.
func (c *Catalog) Operation(name string) *Operation { return c.byName[name] }

// WireName is the name under which op's tool is listed and called.
func (c *Catalog) WireName(op *Operation) string {
	if c.names == PortableNames {
		return strings.ReplaceAll(op.Name, ".", "_")
	}
	return op.Name
}

// nameOn is op's tool name on an endpoint: its alias where the endpoint serves op's slot alone.
func (c *Catalog) nameOn(op *Operation, e Endpoint) string {
	if op.Publish.Alias != "" && e == Of(op.Slot) {
		return op.Publish.Alias
	}
	return c.WireName(op)
}

// Questions lists what must be known of a caller to make its view of e: one check pattern an operation that can
// be hidden, without repetition.
func (c *Catalog) Questions(e Endpoint) []policy.Scope {
	seen := map[policy.Scope]bool{}
	var out []policy.Scope
	for _, op := range c.ops {
		q := policy.Scope{Capability: op.Capability, On: op.KnownOn}
		if !e.includes(op.Slot) || op.KnownOn == (policy.Pattern{}) || seen[q] {
			continue
		}
		seen[q] = true
		out = append(out, q)
	}
	return out
}

// Rights answers Questions: which scopes a caller has something of.
type Rights map[policy.Scope]bool

// View is what one set of rights may see of one endpoint. It only leaves out, never adds or rewords. It is
// immutable and safe for concurrent use.
type View struct {
	// Ops are the operations, in catalog order.
	Ops []*Operation
	// Hash is a digest of what is listed, hex, short: for the audit trail.
	Hash string

	catalog  *Catalog
	endpoint Endpoint
	byName   map[string]*Operation
	listings map[*Operation]Listing
	tools    []byte
	ends     []int // of each tool in tools
}

// viewKey names a view by the rights that matter to it.
type viewKey struct {
	endpoint Endpoint
	rights   string
	audience string
}

// View gives what rights may see of e, whoever asks: the full listing of every operation that they know. It comes from
// a bounded cache.
func (c *Catalog) View(r Rights, e Endpoint) *View { return c.ViewFor(r, e, nil) }

// ViewFor gives what rights may see of e, of that what who's audience sees. It comes from a bounded cache.
func (c *Catalog) ViewFor(r Rights, e Endpoint, who *identity.Principal) *View {
	return c.ViewGranted(Grants{rights: r, key: rightsKey(r)}, e, who)
}

// Grants are rights with their name, which takes time to make: for callers who ask again and again.
type Grants struct {
	rights Rights
	key    string
}

// NewGrants names rights. The caller must not change them afterwards.
func NewGrants(r Rights) Grants { return Grants{rights: r, key: rightsKey(r)} }

// ViewGranted is ViewFor with rights that have their name.
func (c *Catalog) ViewGranted(g Grants, e Endpoint, who *identity.Principal) *View {
	r, key := g.rights, viewKey{e, g.key, c.audienceKey(who)}
	c.mu.Lock()
	defer c.mu.Unlock()
	if v := c.views[key]; v != nil {
		return v
	}
	v := c.newView(r, e, who)
	if c.bytes += len(v.tools); len(c.views) >= maxViews || c.bytes > maxViewBytes {
		clear(c.views)
		c.bytes = len(v.tools)
	}
	c.views[key] = v
	return v
}

// DropViews forgets every cached view: after a change of policy.
func (c *Catalog) DropViews() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.views)
	c.bytes = 0
}

// rightsKey spells the granted scopes in a fixed order.
func rightsKey(r Rights) string {
	if len(r) == 0 {
		return ""
	}
	var granted []string
	for s, ok := range r {
		if ok {
			granted = append(granted, s.String())
		}
	}
	sort.Strings(granted)
	return strings.Join(granted, "\n")
}

// audienceKey names who's audiences; nobody is an audience of its own.
func (c *Catalog) audienceKey(who *identity.Principal) string {
	if who == nil || len(c.audiences) == 0 {
		return ""
	}
	keys := make([]string, len(c.audiences))
	for i, a := range c.audiences {
		keys[i] = a.Key(who)
	}
	return "for " + strings.Join(keys, "\x00")
}

// newView selects what r and who's audience may see.
func (c *Catalog) newView(r Rights, e Endpoint, who *identity.Principal) *View {
	v := &View{catalog: c, endpoint: e, byName: map[string]*Operation{}, listings: map[*Operation]Listing{}}
	for _, op := range c.ops {
		if !e.includes(op.Slot) || !visible(op, r) {
			continue
		}
		if op.Listing != nil {
			l, ok := op.Listing(who)
			if !ok {
				continue
			}
			v.listings[op] = l
		}
		v.Ops = append(v.Ops, op)
		if op.Publish.Tool {
			v.byName[c.nameOn(op, e)] = op
		}
	}
	v.tools = v.encodeTools()
	v.Hash = digest(v.tools)
	return v
}

// visible tells whether rights know op.
func visible(op *Operation, r Rights) bool {
	return op.KnownOn == (policy.Pattern{}) || r[policy.Scope{Capability: op.Capability, On: op.KnownOn}]
}

// Tool finds a tool of the view by its wire name; nil when there is none, or none that the caller may know.
func (v *View) Tool(wireName string) *Operation { return v.byName[wireName] }

// Prompt finds a prompt of the view; nil when there is none.
func (v *View) Prompt(name string) *Operation {
	for _, op := range v.Ops {
		if op.Publish.Prompt != nil && op.Name == name {
			return op
		}
	}
	return nil
}

// Resource finds the operation that answers uri and the input that uri means. ok is false when no resource of
// the view has this URI; err is a fault when it is an ill-formed URI of one.
func (v *View) Resource(uri string) (op *Operation, res *Resource, in canonjson.Value, ok bool, err error) {
	for _, op := range v.Ops {
		for i := range op.Publish.Resources {
			res := &op.Publish.Resources[i]
			if res.Match == nil {
				if res.URI == uri {
					return op, res, canonjson.Object(), true, nil
				}
				continue
			}
			in, ok, err := res.Match(uri)
			if ok || err != nil {
				return op, res, in, ok, err
			}
		}
	}
	return nil, nil, canonjson.Value{}, false, nil
}

// ToolsJSON is the encoded array of the view's tools, in catalog order, byte-identical from call to call. The
// caller must not change it.
func (v *View) ToolsJSON() []byte { return v.tools }

// ToolName is op's name on the wire, on the view's endpoint.
func (v *View) ToolName(op *Operation) string { return v.catalog.nameOn(op, v.endpoint) }

// pageBytes bounds one page of the listed tools: a page with its frame stays far below the largest message. A surface of
// some hundred tools is one page.
const pageBytes = 384 << 10

// ToolsPage is the encoded array of the tools from index first on, as many as fit a page (at least one), and the index
// of the next page; 0 when this is the last. It is the same bytes from call to call. ok is false when first is no
// index.
func (v *View) ToolsPage(first int) (page []byte, next int, ok bool) {
	if first < 0 || first > 0 && first >= len(v.ends) {
		return nil, 0, false
	}
	if first == 0 && len(v.tools) <= pageBytes {
		return v.tools, 0, true
	}
	from := 1
	if first > 0 {
		from = v.ends[first-1] + 1
	}
	last := first
	for last+1 < len(v.ends) && v.ends[last+1]-from <= pageBytes {
		last++
	}
	page = append(append([]byte{'['}, v.tools[from:v.ends[last]]...), ']')
	if last+1 < len(v.ends) {
		next = last + 1
	}
	return page, next, true
}

// encodeTools lists the tools as MCP does.
func (v *View) encodeTools() []byte {
	out := []byte{'['}
	for _, op := range v.Ops {
		if !op.Publish.Tool {
			continue
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = v.appendTool(out, op)
		v.ends = append(v.ends, len(out))
	}
	return append(out, ']')
}

// appendTool appends one tool definition.
func (v *View) appendTool(out []byte, op *Operation) []byte {
	l, special := v.listings[op]
	if !special {
		l = op.Full()
	}
	m := []canonjson.Member{
		canonjson.M("name", canonjson.String(v.ToolName(op))),
		canonjson.M("title", canonjson.String(op.Title)),
		canonjson.M("description", canonjson.String(l.Doc)),
		canonjson.M("inputSchema", schemaValue(l.Input)),
	}
	if op.Title == "" {
		m = append(m[:1], m[2:]...)
	}
	if l.Output != nil {
		m = append(m, canonjson.M("outputSchema", schemaValue(l.Output)))
	}
	if a := annotations(op); len(a) > 0 {
		m = append(m, canonjson.M("annotations", canonjson.Object(a...)))
	}
	if !op.Publish.ToolMeta.IsAbsent() {
		m = append(m, canonjson.M("_meta", op.Publish.ToolMeta))
	}
	return canonjson.Object(m...).AppendJSON(out)
}

// Full is the listing of op with nothing left out.
func (op *Operation) Full() Listing {
	l := Listing{Doc: op.Doc, Input: op.In, Output: op.Out}
	if op.Publish.Input != nil {
		l.Input = op.Publish.Input
	}
	if op.Publish.Output != nil {
		l.Output = op.Publish.Output
	}
	return l
}

// schemaValue is the schema's own text as a value, keywords in the order they were written.
func schemaValue(s *Schema) canonjson.Value { return canonjson.Raw(s.text) }

// annotations are the hints for the client. The gate never relies on them.
func annotations(op *Operation) []canonjson.Member {
	var m []canonjson.Member
	add := func(name string, f Fact) {
		if value, set := f.Known(); set {
			m = append(m, canonjson.M(name, canonjson.Bool(value)))
		}
	}
	if op.Title != "" {
		m = append(m, canonjson.M("title", canonjson.String(op.Title)))
	}
	add("readOnlyHint", op.Effects.ReadOnly)
	add("destructiveHint", op.Effects.Destructive)
	add("idempotentHint", op.Effects.Idempotent)
	add("openWorldHint", op.Effects.OpenWorld)
	if len(m) == 1 && op.Title != "" {
		return nil
	}
	return m
}

// NoHandles knows no handle.
type NoHandles struct{}

// UploadPath knows none.
func (NoHandles) UploadPath(context.Context, string, string, string) (policy.Path, bool, error) {
	return "", false, nil
}
