package mcp

import (
	"encoding/base64"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tabellion-mcp/tabellion/fault"
	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/catalog"
	"github.com/tabellion-mcp/tabellion/internal/gate"
)

// Answers are assembled by appending bytes: a result's JSON exists already and is copied, once as the structured
// content and once, escaped, as the text.

// listTTL is how long a client may keep a listing. Clients that listen hear of changes sooner.
const listTTL = 30 * time.Second

// appendHead begins an answer up to the member that follows the id. An empty id is one that could not be read.
func appendHead(dst []byte, id string) []byte {
	dst = append(dst, `{"jsonrpc":"2.0","id":`...)
	if id == "" {
		return append(dst, "null"...)
	}
	return append(dst, id...)
}

// appendError completes an answer with an error.
func appendError(dst []byte, id string, form *fault.Form) []byte {
	dst = appendHead(dst, id)
	dst = append(dst, `,"error":{"code":`...)
	dst = strconv.AppendInt(dst, int64(form.RPC), 10)
	dst = append(dst, `,"message":`...)
	dst = appendString(dst, form.Message)
	if form.Data != nil {
		dst = append(dst, `,"data":`...)
		dst = append(dst, form.Data...)
	}
	return append(dst, "}}"...)
}

// appendString appends s as a JSON string.
func appendString(dst []byte, s string) []byte { return canonjson.String(s).AppendJSON(dst) }

// appendQuoted appends JSON text as a JSON string. Text of ours is UTF-8 without controls, so that only quotation
// marks and backslashes need an escape.
func appendQuoted(dst, text []byte) []byte {
	dst = append(dst, '"')
	from := 0
	for i, c := range text {
		if c == '"' || c == '\\' {
			dst = append(dst, text[from:i]...)
			dst = append(dst, '\\')
			from = i
		}
	}
	dst = append(dst, text[from:]...)
	return append(dst, '"')
}

// appendComplete begins a result that is the end of its request.
func (x *exchange) appendComplete(dst []byte) []byte {
	if x.era == fault.Stateless {
		return append(dst, `{"resultType":"complete",`...)
	}
	return append(dst, '{')
}

// appendToolResult appends the result of a call that succeeded, or of one whose own work failed.
func (x *exchange) appendToolResult(dst []byte, r gate.Reply) []byte {
	res := r.Result
	dst = x.appendComplete(dst)
	dst = append(dst, `"content":[`...)
	if len(res.Blocks) == 0 && res.JSON != nil {
		dst = append(dst, `{"type":"text","text":`...)
		dst = append(appendQuoted(dst, res.JSON), '}')
	}
	for i := range res.Blocks {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendBlock(dst, &res.Blocks[i])
	}
	dst = append(dst, ']')
	if res.JSON != nil {
		dst = append(dst, `,"structuredContent":`...)
		dst = append(dst, res.JSON...)
	}
	if res.IsError {
		dst = append(dst, `,"isError":true`...)
	}
	return x.appendMeta(dst, r)
}

// appendToolError appends a business failure as the result of a tool call.
func (x *exchange) appendToolError(dst []byte, r gate.Reply, body []byte) []byte {
	dst = x.appendComplete(dst)
	dst = append(dst, `"content":[{"type":"text","text":`...)
	dst = appendQuoted(dst, body)
	dst = append(dst, `}],"structuredContent":`...)
	dst = append(dst, body...)
	dst = append(dst, `,"isError":true`...)
	return x.appendMeta(dst, r)
}

// appendMeta ends a result with the labels of its content.
func (x *exchange) appendMeta(dst []byte, r gate.Reply) []byte {
	dst = append(dst, `,"_meta":`...)
	if r.Result != nil && !r.Result.Meta.IsAbsent() {
		dst = append(dst, x.s.labels.encode(r, x.era)...) // it holds what only this result has
		return append(dst, '}')
	}
	dst = append(dst, x.s.labels.get(r, x.era)...)
	return append(dst, '}')
}

// appendServer ends a result without content of anybody's: in the stateless era it only names the server.
func (x *exchange) appendServer(dst []byte) []byte {
	if x.era != fault.Stateless {
		return append(dst, '}')
	}
	dst = append(dst, `,"_meta":{"`+metaServerInfo+`":`...)
	dst = append(dst, x.s.labels.info...)
	return append(dst, "}}"...)
}

// appendCache appends how long a result may be kept. Who asks decides what a result holds, so that it is never
// public (security requirements, S30).
func (x *exchange) appendCache(dst []byte, ttl time.Duration) []byte {
	if x.era != fault.Stateless {
		return dst
	}
	dst = append(dst, `,"ttlMs":`...)
	dst = strconv.AppendInt(dst, ttl.Milliseconds(), 10)
	return append(dst, `,"cacheScope":"private"`...)
}

// appendBlock appends one content block.
func appendBlock(dst []byte, b *catalog.Block) []byte {
	dst = append(dst, `{"type":`...)
	dst = appendString(dst, b.Type)
	switch b.Type {
	case "text":
		dst = append(dst, `,"text":`...)
		dst = appendString(dst, b.Text)
	case "resource":
		dst = append(dst, `,"resource":`...)
		dst = appendContents(dst, b, b.URI, b.MIME)
	default:
		dst = append(dst, `,"data":`...)
		dst = appendBase64(dst, b.Data)
		dst = append(dst, `,"mimeType":`...)
		dst = appendString(dst, b.MIME)
	}
	return append(dst, '}')
}

// appendContents appends the contents of a resource: text, or bytes when there are any.
func appendContents(dst []byte, b *catalog.Block, uri, mime string) []byte {
	dst = append(dst, `{"uri":`...)
	dst = appendString(dst, uri)
	if mime != "" {
		dst = append(dst, `,"mimeType":`...)
		dst = appendString(dst, mime)
	}
	if b.Data != nil {
		dst = append(dst, `,"blob":`...)
		dst = appendBase64(dst, b.Data)
	} else {
		dst = append(dst, `,"text":`...)
		dst = appendString(dst, b.Text)
	}
	return append(dst, '}')
}

// appendBase64 appends data as a JSON string.
func appendBase64(dst, data []byte) []byte {
	dst = append(dst, '"')
	dst = base64.StdEncoding.AppendEncode(dst, data)
	return append(dst, '"')
}

// appendAsk appends the questions of a call that is not done. State comes back with the answers.
func (x *exchange) appendAsk(dst []byte, q *gate.Ask) []byte {
	dst = append(dst, `{"resultType":"input_required","inputRequests":{`...)
	for i, r := range q.Requests {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendString(dst, r.Key)
		dst = append(dst, `:{"method":`...)
		dst = appendString(dst, r.Method)
		dst = append(dst, `,"params":`...)
		if r.Params.IsAbsent() {
			dst = append(dst, "{}"...)
		} else {
			dst = r.Params.AppendJSON(dst)
		}
		dst = append(dst, '}')
	}
	dst = append(dst, `},"requestState":`...)
	dst = appendString(dst, q.State)
	return x.appendServer(dst)
}

// appendResource appends the contents of a resource that was read. The URI is the asked one.
func (x *exchange) appendResource(dst []byte, r gate.Reply, uri string) []byte {
	res := r.Result
	mime := mimeOf(r.Op, uri)
	dst = x.appendComplete(dst)
	dst = append(dst, `"contents":[`...)
	if len(res.Blocks) == 0 && res.JSON != nil {
		if mime == "" {
			mime = "application/json"
		}
		dst = append(dst, `{"uri":`...)
		dst = appendString(dst, uri)
		dst = append(dst, `,"mimeType":`...)
		dst = appendString(dst, mime)
		dst = append(dst, `,"text":`...)
		dst = append(appendQuoted(dst, res.JSON), '}')
	}
	for i := range res.Blocks {
		b := &res.Blocks[i]
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendContents(dst, b, or(b.URI, uri), or(b.MIME, mime))
	}
	dst = append(dst, ']')
	ttl := time.Duration(0)
	if r.Op != nil && r.Op.Cache != nil {
		ttl = r.Op.Cache.TTL
	}
	dst = x.appendCache(dst, ttl)
	return x.appendMeta(dst, r)
}

// or is a, or b when a is empty.
func or(a, b string) string {
	if a == "" {
		return b
	}
	return a
}

// mimeOf is the declared type of the operation's resource with this URI.
func mimeOf(op *catalog.Operation, uri string) string {
	if op == nil {
		return ""
	}
	for i := range op.Publish.Resources {
		res := &op.Publish.Resources[i]
		if res.Match == nil {
			if res.URI == uri {
				return res.MIME
			}
			continue
		}
		if _, ok, err := res.Match(uri); ok && err == nil {
			return res.MIME
		}
	}
	return ""
}

// appendPrompt appends the messages of a prompt.
func (x *exchange) appendPrompt(dst []byte, r gate.Reply) []byte {
	res := r.Result
	dst = x.appendComplete(dst)
	if r.Op != nil && r.Op.Doc != "" {
		dst = append(dst, `"description":`...)
		dst = append(appendString(dst, r.Op.Doc), ',')
	}
	dst = append(dst, `"messages":[`...)
	if len(res.Blocks) == 0 && res.JSON != nil {
		dst = append(dst, `{"role":"user","content":{"type":"text","text":`...)
		dst = append(appendQuoted(dst, res.JSON), "}}"...)
	}
	for i := range res.Blocks {
		b := &res.Blocks[i]
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, `{"role":`...)
		dst = appendString(dst, or(b.Role, "user"))
		dst = append(dst, `,"content":`...)
		dst = append(appendBlock(dst, b), '}')
	}
	dst = append(dst, ']')
	return x.appendMeta(dst, r)
}

// appendCompletion appends proposals for an argument.
func (x *exchange) appendCompletion(dst []byte, values []string) []byte {
	shown := values[:min(len(values), maxCompletions)]
	dst = x.appendComplete(dst)
	dst = append(dst, `"completion":{"values":[`...)
	for i, v := range shown {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendString(dst, v)
	}
	dst = append(dst, `],"total":`...)
	dst = strconv.AppendInt(dst, int64(len(values)), 10)
	dst = append(dst, `,"hasMore":`...)
	dst = strconv.AppendBool(dst, len(values) > len(shown))
	dst = append(dst, '}')
	return x.appendServer(dst)
}

// appendList appends a listing.
func (x *exchange) appendList(dst []byte, member string, items func([]byte) []byte) []byte {
	dst = x.appendComplete(dst)
	dst = append(dst, '"')
	dst = append(dst, member...)
	dst = append(dst, `":`...)
	dst = items(dst)
	dst = x.appendCache(dst, listTTL)
	return x.appendServer(dst)
}

// appendResources appends the resources with a fixed URI.
func appendResources(dst []byte, v *catalog.View) []byte { return appendPublished(dst, v, false) }

// appendTemplates appends the resources with a template.
func appendTemplates(dst []byte, v *catalog.View) []byte { return appendPublished(dst, v, true) }

// appendPublished appends the view's resources of one kind.
func appendPublished(dst []byte, v *catalog.View, templates bool) []byte {
	items := []canonjson.Value{}
	for _, op := range v.Ops {
		for _, r := range op.Publish.Resources {
			if (r.Template != "") != templates {
				continue
			}
			key, uri := "uri", r.URI
			if templates {
				key, uri = "uriTemplate", r.Template
			}
			items = append(items, canonjson.Object(
				canonjson.M(key, canonjson.String(uri)), canonjson.M("name", canonjson.String(r.Name)),
				optional("title", r.Title), optional("description", r.Doc), optional("mimeType", r.MIME)))
		}
	}
	return canonjson.Array(items...).AppendJSON(dst)
}

// appendPrompts appends the view's prompts.
func appendPrompts(dst []byte, v *catalog.View) []byte {
	items := []canonjson.Value{}
	for _, op := range v.Ops {
		p := op.Publish.Prompt
		if p == nil {
			continue
		}
		args := []canonjson.Value{}
		for _, a := range p.Arguments {
			args = append(args, canonjson.Object(
				canonjson.M("name", canonjson.String(a.Name)), optional("title", a.Title), optional("description", a.Doc),
				canonjson.M("required", canonjson.Bool(a.Required))))
		}
		items = append(items, canonjson.Object(
			canonjson.M("name", canonjson.String(op.Name)), optional("title", op.Title), optional("description", op.Doc),
			canonjson.M("arguments", canonjson.Array(args...))))
	}
	return canonjson.Array(items...).AppendJSON(dst)
}

// optional is a member that is left out when its text is empty.
func optional(name, text string) canonjson.Member {
	if text == "" {
		return canonjson.Member{Name: name}
	}
	return canonjson.M(name, canonjson.String(text))
}

// discoverMembers encodes the answer to server/discover, all but its resultType, the version list of which names both
// eras: a client that knows only the older one begins with initialize on the same path.
func (s *Server) discoverMembers(e *endpoint) []byte {
	versions := make([]canonjson.Value, len(allVersions))
	for i, v := range allVersions {
		versions[i] = canonjson.String(v)
	}
	m := []canonjson.Member{
		canonjson.M("supportedVersions", canonjson.Array(versions...)),
		canonjson.M("capabilities", e.capabilities(fault.Stateless)),
		optional("instructions", s.cfg.Info.Instructions),
		canonjson.M("ttlMs", canonjson.Int(listTTL.Milliseconds())),
		canonjson.M("cacheScope", canonjson.String("private")),
	}
	text := canonjson.Object(m...).AppendJSON(nil)
	return text[1 : len(text)-1]
}

// capabilities are what an endpoint can do.
func (e *endpoint) capabilities(era fault.Era) canonjson.Value {
	var changes, subscribe canonjson.Member // left out where nothing tells of changes
	if e.notifies {
		changes, subscribe = canonjson.M("listChanged", canonjson.Bool(true)), canonjson.M("subscribe", canonjson.Bool(true))
	}
	m := []canonjson.Member{}
	if e.prompts {
		m = append(m, canonjson.M("completions", canonjson.Object()))
	}
	m = append(m, canonjson.M("logging", canonjson.Object()))
	if e.prompts {
		m = append(m, canonjson.M("prompts", canonjson.Object(changes)))
	}
	if e.resources {
		m = append(m, canonjson.M("resources", canonjson.Object(changes, subscribe)))
	}
	m = append(m, canonjson.M("tools", canonjson.Object(changes)))
	return canonjson.Object(m...)
}

// appendDiscover appends the answer to server/discover.
func (x *exchange) appendDiscover(dst []byte) []byte {
	dst = x.appendComplete(dst)
	dst = append(dst, x.e.discover...)
	return x.appendServer(dst)
}

// maxLabels bounds the kept labels. Sources are few: a slot, or a workspace.
const maxLabels = 256

// labelCache keeps encoded `_meta` objects.
type labelCache struct {
	info []byte // the server's own name and version
	n    atomic.Int32
	m    sync.Map // labelKey -> []byte
}

// labelKey is what labels depend on.
type labelKey struct {
	source string
	public bool
	era    fault.Era
}

// get gives the `_meta` object of a reply. The caller must not change it.
func (c *labelCache) get(r gate.Reply, era fault.Era) []byte {
	key := labelKey{era: era}
	if r.Result != nil {
		key.source, key.public = r.Result.Source, r.Result.Public
	}
	if v, ok := c.m.Load(key); ok {
		return v.([]byte)
	}
	text := c.encode(r, era)
	if c.n.Load() < maxLabels {
		if _, loaded := c.m.LoadOrStore(key, text); !loaded {
			c.n.Add(1)
		}
	}
	return text
}

// encode makes the `_meta` object of a reply.
func (c *labelCache) encode(r gate.Reply, era fault.Era) []byte {
	members := r.Labels().Members()
	if era == fault.Stateless {
		members = append([]canonjson.Member{canonjson.M(metaServerInfo, canonjson.Raw(c.info))}, members...)
	}
	return canonjson.Object(members...).AppendJSON(nil)
}
