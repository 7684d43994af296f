package mcp

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/tabellion-mcp/tabellion/fault"
	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/catalog"
	"github.com/tabellion-mcp/tabellion/internal/gate"
	"github.com/tabellion-mcp/tabellion/internal/identity"
	"github.com/tabellion-mcp/tabellion/internal/transport/web"
)

// Bounds of subscriptions (security requirements, section 3).
const (
	maxSubscriptions = 8   // open at once, of one principal
	maxSubscribed    = 100 // resources in one filter
)

// filter is what a subscription wants to hear of.
type filter struct {
	tools, prompts, resources bool
	uris                      []string
}

// filterOf reads the filter of a subscriptions/listen request. Kinds that the endpoint does not have, or tells of no
// change of, are left out.
func (e *endpoint) filterOf(params canonjson.Value) (filter, *fault.Error) {
	v := params.Get("notifications")
	if v.Kind() != canonjson.KindObject {
		return filter{}, badParams("params.notifications must be an object")
	}
	f := filter{
		tools:     e.notifies && v.Get("toolsListChanged").Bool(),
		prompts:   e.notifies && e.prompts && v.Get("promptsListChanged").Bool(),
		resources: e.notifies && e.resources && v.Get("resourcesListChanged").Bool(),
	}
	uris := v.Get("resourceSubscriptions")
	if uris.Len() > maxSubscribed {
		return filter{}, fault.New(fault.QuotaExceeded, "a subscription may name %d resources", maxSubscribed)
	}
	for _, u := range uris.Items() {
		if u.Kind() != canonjson.KindString {
			return filter{}, badParams("params.notifications.resourceSubscriptions must hold strings")
		}
		if e.subscribes() {
			f.uris = append(f.uris, strings.Clone(u.Str())) // the text of the whole message would stay with it
		}
	}
	return f, nil
}

// value is the filter as the acknowledgement repeats it.
func (f *filter) value() canonjson.Value {
	var m []canonjson.Member
	add := func(name string, on bool) {
		if on {
			m = append(m, canonjson.M(name, canonjson.Bool(true)))
		}
	}
	add("toolsListChanged", f.tools)
	add("promptsListChanged", f.prompts)
	add("resourcesListChanged", f.resources)
	if len(f.uris) > 0 {
		uris := make([]canonjson.Value, len(f.uris))
		for i, u := range f.uris {
			uris[i] = canonjson.String(u)
		}
		m = append(m, canonjson.M("resourceSubscriptions", canonjson.Array(uris...)))
	}
	return canonjson.Object(m...)
}

// empty tells whether there is nothing to hear of.
func (f *filter) empty() bool { return !f.tools && !f.prompts && !f.resources && len(f.uris) == 0 }

// listener is one open subscription. What changed is gathered until it is sent, so that a slow client costs no more
// than its filter.
type listener struct {
	filter filter
	wake   chan struct{} // holds one when there is something to send

	mu  sync.Mutex
	due catalog.Change      // kinds that changed
	hit map[string]struct{} // resources that changed
}

// listeners are the open subscriptions of the stateless era. They count those of the older era too, where each
// resource is one.
type listeners struct {
	places quota // by the principal's rate key

	mu sync.Mutex
	m  map[*listener]string // to the principal's rate key
}

// reserve takes a place for a subscription; false when the principal has too many.
func (l *listeners) reserve(key string) bool { return l.places.take(key, maxSubscriptions, 0) }

// free gives a place back.
func (l *listeners) free(key string) { l.places.free(key) }

// add registers a subscription that has a place.
func (l *listeners) add(key string, f filter) *listener {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.m == nil {
		l.m = map[*listener]string{}
	}
	n := &listener{filter: f, wake: make(chan struct{}, 1), hit: map[string]struct{}{}}
	l.m[n] = key
	return n
}

// remove forgets a subscription and frees its place.
func (l *listeners) remove(n *listener) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.free(l.m[n])
	delete(l.m, n)
}

// tooManySubscriptions is the refusal of one more.
func tooManySubscriptions() *fault.Error {
	return fault.New(fault.QuotaExceeded, "a caller may have %d subscriptions open; end one first", maxSubscriptions)
}

// tell notes a change with everybody who wants to hear of it.
func (l *listeners) tell(c catalog.Change) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for n := range l.m {
		n.note(c)
	}
}

// note keeps what of c is in the filter.
func (n *listener) note(c catalog.Change) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.due.Tools = n.due.Tools || (c.Tools && n.filter.tools)
	n.due.Prompts = n.due.Prompts || (c.Prompts && n.filter.prompts)
	n.due.Resources = n.due.Resources || (c.Resources && n.filter.resources)
	for _, u := range n.filter.uris {
		if u == c.Resource {
			n.hit[u] = struct{}{}
		}
	}
	if n.due.Tools || n.due.Prompts || n.due.Resources || len(n.hit) > 0 {
		select {
		case n.wake <- struct{}{}:
		default:
		}
	}
}

// take gives what is to be sent, as messages that carry the subscription's id.
func (n *listener) take(id canonjson.Value) [][]byte {
	n.mu.Lock()
	due, hit := n.due, n.hit
	n.due, n.hit = catalog.Change{}, map[string]struct{}{}
	n.mu.Unlock()
	meta := subscriptionMeta(id)
	var out [][]byte
	if due.Tools {
		out = append(out, notification("notifications/tools/list_changed", meta))
	}
	if due.Prompts {
		out = append(out, notification("notifications/prompts/list_changed", meta))
	}
	if due.Resources {
		out = append(out, notification("notifications/resources/list_changed", meta))
	}
	for _, u := range n.filter.uris {
		if _, ok := hit[u]; ok {
			out = append(out, notification("notifications/resources/updated", meta, canonjson.M("uri", canonjson.String(u))))
		}
	}
	return out
}

// subscriptionMeta is the `_meta` of everything that belongs to a subscription: the id of the request that opened it.
func subscriptionMeta(id canonjson.Value) canonjson.Member {
	return canonjson.M("_meta", canonjson.Object(canonjson.M(metaSubscription, id)))
}

// subscribe checks a subscriptions/listen request and opens the subscription. Each resource must be readable now.
func (x *exchange) subscribe(ctx context.Context) (*listener, *fault.Form) {
	f, bad := x.e.filterOf(x.m.params)
	if bad != nil {
		return nil, x.fail(bad)
	}
	key := x.who.RateKey()
	if !x.s.listeners.reserve(key) {
		return nil, x.fail(tooManySubscriptions())
	}
	if form := x.admitFilter(ctx, &f); form != nil {
		x.s.listeners.free(key)
		return nil, form
	}
	return x.s.listeners.add(key, f), nil
}

// admitFilter counts a subscription as a call for each resource that it names, and as one when it names none. Each
// must be readable now.
func (x *exchange) admitFilter(ctx context.Context, f *filter) *fault.Form {
	if len(f.uris) == 0 {
		if _, bad := x.s.cfg.Gate.View(ctx, x.who, x.e.name); bad != nil {
			return x.fail(bad)
		}
	}
	for _, uri := range f.uris {
		if form := x.readable(ctx, uri); form != nil {
			return form
		}
	}
	return nil
}

// readable asks the gate for the resource, as a read that counts as a call, and drops the content.
func (x *exchange) readable(ctx context.Context, uri string) *fault.Form {
	reply := x.s.cfg.Gate.Run(ctx, gate.Request{
		Who: x.who, Endpoint: x.e.name, Surface: fault.Resource, Era: x.era, Name: uri, Addr: x.addr,
	})
	if reply.Fault != nil {
		return x.failed(reply, fault.Resource)
	}
	return nil
}

// stay sends what the subscription hears until ctx ends, send fails, alive says no, or the server closes. It returns
// true when the server closed, and an answer is due.
func (s *Server) stay(ctx context.Context, n *listener, id canonjson.Value, send func([]byte) bool, alive func() bool) bool {
	defer s.listeners.remove(n)
	ack := notification("notifications/subscriptions/acknowledged", subscriptionMeta(id), canonjson.M("notifications", n.filter.value()))
	if !send(ack) {
		return false
	}
	if n.filter.empty() {
		return true
	}
	tick := time.NewTicker(s.cfg.Recheck)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-s.open.Done():
			return true
		case <-tick.C:
			if !alive() {
				return false
			}
		case <-n.wake:
			for _, message := range n.take(id) {
				if !send(message) {
					return false
				}
			}
		}
	}
}

// idValue is a request's id as a value.
func (m *message) idValue() canonjson.Value {
	v, _, err := canonjson.Parse([]byte(m.id), canonjson.Limits{})
	if err != nil {
		return canonjson.Null()
	}
	return v
}

// appendListened appends the result that ends a subscription.
func appendListened(dst []byte, id canonjson.Value) []byte {
	m := subscriptionMeta(id)
	return canonjson.Object(canonjson.M("resultType", canonjson.String("complete")), m).AppendJSON(dst)
}

// listenHTTP serves subscriptions/listen as the stream of one POST.
func (s *Server) listenHTTP(p *poster, r *http.Request, x *exchange, creds identity.Credentials) {
	if !p.stream {
		web.Problem(p.w, http.StatusNotAcceptable, "not_acceptable", "a subscription is a stream: the header Accept must take text/event-stream")
		return
	}
	n, form := x.subscribe(r.Context())
	if form != nil {
		p.headers(form)
		p.send(form.HTTP, appendError(nil, p.id, form))
		return
	}
	id := x.m.idValue()
	if s.stay(r.Context(), n, id, p.event, func() bool { return s.stillValid(r.Context(), creds) }) {
		p.result(func(dst []byte) []byte { return appendListened(dst, id) })
	}
}

// stillValid tells whether credentials that were good are so still. When they cannot be checked now they are taken as
// good: the stream shows nothing but that something changed. That the address is refused for failed authentications is
// told of no good key, so that it ends the stream: else a revoked key could outlive its end behind failures of its own.
func (s *Server) stillValid(ctx context.Context, creds identity.Credentials) bool {
	_, f := s.cfg.Gate.Authenticate(ctx, creds)
	return f == nil || f.Code == fault.AuthBackend
}
