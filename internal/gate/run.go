package gate

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/tabellion-mcp/tabellion/fault"
	"github.com/tabellion-mcp/tabellion/internal/audit"
	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/catalog"
	"github.com/tabellion-mcp/tabellion/internal/identity"
	"github.com/tabellion-mcp/tabellion/internal/seal"
	"github.com/tabellion-mcp/tabellion/policy"
)

// Authenticate tells who sent credentials. The fault is the same whatever was wrong with them.
func (g *Gate) Authenticate(ctx context.Context, c identity.Credentials) (*identity.Principal, *fault.Error) {
	p, reason, err := g.cfg.Auth.Authenticate(ctx, c)
	if err != nil {
		g.cfg.Log.ErrorContext(ctx, "authentication backend", "error", err)
		g.cfg.Observer.Refused(fault.AuthBackend)
		return nil, fault.New(fault.AuthBackend, "the keys cannot be checked now; retry shortly").After(time.Second).Wrap(err)
	}
	if p != nil {
		return p, nil // a good key passes whatever others behind its address did
	}
	if wait := g.failures.blocked(c.Addr); wait > 0 {
		g.cfg.Observer.Refused(fault.RateLimited)
		return nil, fault.New(fault.RateLimited, "too many failed authentications from this address; wait and retry").After(wait)
	}
	g.cfg.Observer.Refused(fault.UnauthorizedKey)
	if tell, quiet := g.failures.add(c.Addr, c.Key != "" || c.Malformed); tell {
		g.cfg.Recorder.Store(audit.Entry{
			Time: g.cfg.Clock.Now(), Correlation: correlation(), Kind: audit.KindAuth, Client: c.Addr,
			Decision: "none", Rule: reason, Outcome: string(fault.UnauthorizedKey), Count: quiet,
		})
	}
	return nil, fault.New(fault.UnauthorizedKey, "Unauthorized: send a valid API key as Authorization: Bearer <key>")
}

// View gives what who may see of an endpoint, for listings. It counts as a call.
func (g *Gate) View(ctx context.Context, who *identity.Principal, e catalog.Endpoint) (*catalog.View, *fault.Error) {
	if f := g.admit(who); f != nil {
		return nil, f
	}
	return g.view(ctx, who, e)
}

// listLife is how long the cursor of a listing is good (security requirements, section 3).
const listLife = 15 * time.Minute

// SealList makes the cursor that stands for the tool with this index of a view's listing.
func (g *Gate) SealList(v *catalog.View, index int) string {
	text, err := g.cfg.Sealer.Seal(seal.PurposeCursor, listLife, listBinding(v), []byte(strconv.Itoa(index)))
	if err != nil {
		g.cfg.Log.Error("a cursor cannot be sealed", "error", err)
	}
	return text
}

// OpenList reads a cursor of SealList.
func (g *Gate) OpenList(v *catalog.View, cursor string) (int, *fault.Error) {
	plain, err := g.cfg.Sealer.Open(seal.PurposeCursor, listBinding(v), cursor)
	index, bad := strconv.Atoi(string(plain))
	if err != nil || bad != nil {
		return 0, fault.New(fault.InvalidParams, "the cursor is not valid: begin the list anew, without a cursor")
	}
	return index, nil
}

// listBinding names what a cursor of a listing belongs to.
func listBinding(v *catalog.View) []byte { return []byte("tools/list\x00" + v.Hash) }

// admit counts one call against the principal's rate.
func (g *Gate) admit(who *identity.Principal) *fault.Error {
	if wait := g.rates.take(who.RateKey()); wait > 0 {
		g.cfg.Observer.Refused(fault.RateLimited)
		return fault.New(fault.RateLimited, "too many calls; retry after %d ms", wait.Milliseconds()).After(wait)
	}
	return nil
}

// view gives the cached view for what who has.
func (g *Gate) view(ctx context.Context, who *identity.Principal, e catalog.Endpoint) (*catalog.View, *fault.Error) {
	granted, err := g.granted(ctx, who, e)
	if err != nil {
		return nil, noDecision(err)
	}
	return g.cfg.Catalog.ViewGranted(granted, e, who), nil
}

// maxGranted bounds the kept grants; all are forgotten beyond it.
const maxGranted = 4096

// granted tells what who has of what an endpoint's listing asks. The answers of a policy that cannot change are kept:
// with many operations they take longer than a call.
func (g *Gate) granted(ctx context.Context, who *identity.Principal, e catalog.Endpoint) (catalog.Grants, error) {
	key := ""
	if fixed(g.decider(who)) {
		key = grantedKey(who, e)
		g.mu.Lock()
		kept, ok := g.kept[key]
		g.mu.Unlock()
		if ok {
			return kept, nil
		}
	}
	questions := g.cfg.Catalog.Questions(e)
	rights := catalog.Rights{}
	if len(questions) > 0 {
		known, err := g.survey(ctx, who, questions)
		if err != nil {
			return catalog.Grants{}, err
		}
		for i, q := range questions {
			rights[q] = known[i]
		}
	}
	granted := catalog.NewGrants(rights)
	if key != "" {
		g.mu.Lock()
		defer g.mu.Unlock()
		if len(g.kept) >= maxGranted {
			clear(g.kept)
		}
		g.kept[key] = granted
	}
	return granted, nil
}

// fixed tells whether a decider always gives the same answers.
func fixed(d policy.Decider) bool {
	switch d.(type) {
	case *policy.Policy, policy.Open:
		return true
	}
	return false
}

// grantedKey names everything that a fixed policy's answers depend on.
func grantedKey(who *identity.Principal, e catalog.Endpoint) string {
	var b strings.Builder
	b.WriteString(string(e))
	for _, s := range who.Subjects {
		b.WriteByte(0)
		b.WriteString(s)
	}
	if who.Only != nil {
		b.WriteString("\x00\x00only")
	}
	for _, s := range who.Only {
		b.WriteByte(0)
		b.WriteString(s.String())
	}
	return b.String()
}

// decider is who decides for who.
func (g *Gate) decider(who *identity.Principal) policy.Decider {
	if who.Decider != nil {
		return who.Decider
	}
	return g.cfg.Decider
}

// survey answers what who has of each scope at all.
func (g *Gate) survey(ctx context.Context, who *identity.Principal, scopes []policy.Scope) ([]bool, error) {
	d := g.decider(who)
	var known []bool
	if s, ok := d.(policy.Surveyor); ok {
		var err error
		if known, err = s.Survey(ctx, who.Subjects, scopes); err != nil {
			return nil, err
		}
	} else {
		checks := make([]policy.Check, len(scopes))
		for i, s := range scopes {
			checks[i] = policy.Check{Capability: s.Capability, Path: s.On.Base()}
		}
		decisions, err := d.Decide(ctx, who.Subjects, checks)
		if err != nil {
			return nil, err
		}
		for _, dec := range decisions {
			known = append(known, dec.Allow)
		}
	}
	if len(known) != len(scopes) {
		return nil, fmt.Errorf("%d answers for %d scopes", len(known), len(scopes))
	}
	for i, s := range scopes {
		known[i] = known[i] && keyMeets(who, s)
	}
	return known, nil
}

// keyMeets tells whether the narrowing of a key leaves anything of s.
func keyMeets(who *identity.Principal, s policy.Scope) bool {
	if who.Only == nil {
		return true
	}
	for _, o := range who.Only {
		if o.Capability == s.Capability && o.On.Overlaps(s.On) {
			return true
		}
	}
	return false
}

// decide answers checks: the policy's answer, narrowed by the key's scopes.
func (g *Gate) decide(ctx context.Context, who *identity.Principal, checks []policy.Check) ([]policy.Decision, error) {
	decisions, err := g.decider(who).Decide(ctx, who.Subjects, checks)
	if err != nil {
		return nil, err
	}
	if len(decisions) != len(checks) {
		return nil, fmt.Errorf("%d decisions for %d checks", len(decisions), len(checks))
	}
	if who.Only == nil {
		return decisions, nil
	}
	for i, c := range checks {
		if decisions[i].Allow && !covered(who.Only, c) {
			decisions[i] = policy.Decision{Rule: "the key's scopes do not cover it"}
		}
	}
	return decisions, nil
}

// covered tells whether one of scopes covers c.
func covered(scopes []policy.Scope, c policy.Check) bool {
	for _, s := range scopes {
		if s.Covers(c) {
			return true
		}
	}
	return false
}

// noDecision is the answer when the decision point gave none: never allow.
func noDecision(err error) *fault.Error {
	return fault.New(fault.StoreUnavailable, "no access decision could be had; nothing was done, retry with the same arguments").Wrap(err)
}

// run is the state of one call on its way through the gate.
type run struct {
	g     *Gate
	req   *Request
	op    *catalog.Operation
	in    canonjson.Value
	entry audit.Entry
	start time.Time
	// confirmed is the target's version that a person confirmed in this call or before a question; nil when none did.
	confirmed *string
	intended  bool // an intent is in the audit trail, and an outcome must follow
}

// Run executes one call.
func (g *Gate) Run(ctx context.Context, req Request) (reply Reply) {
	r := &run{g: g, req: &req, start: time.Now(), entry: audit.Entry{
		Time: g.cfg.Clock.Now(), Correlation: correlation(), Subject: req.Who.Subject, Method: string(req.Who.Method), Key: req.Who.KeyID,
		Tenant: req.Who.Tenant, Client: req.Addr, Surface: string(req.Surface), Decision: "none",
	}}
	reply = r.safely(ctx)
	reply.Op, reply.Correlation = r.op, r.entry.Correlation
	r.finish(ctx, &reply)
	return reply
}

// safely is through, where a panic of any function of the operation ends this call only. What through holds is
// released.
func (r *run) safely(ctx context.Context) (reply Reply) {
	defer func() {
		if v := recover(); v != nil {
			reply = Reply{Fault: r.internal(ctx, &panicked{v, debug.Stack()})}
		}
	}()
	return r.through(ctx)
}

// through takes the call from step 3 to step 9.
func (r *run) through(ctx context.Context) Reply {
	if !r.req.Again {
		if f := r.g.admit(r.req.Who); f != nil {
			return Reply{Fault: f}
		}
	}
	// A transfer may take hours; its transport bounds how many there are.
	if !r.req.Again && r.req.Surface != fault.Transfer {
		release, ok := r.g.places.take(ctx, r.req.Who.RateKey())
		if !ok {
			return Reply{Fault: overloaded()}
		}
		defer release()
	}
	if f := r.find(ctx); f != nil {
		return Reply{Fault: f}
	}
	release, ok := r.g.ops.take(r.op.Name, r.op.Bounds.Concurrency)
	if !ok {
		return Reply{Fault: overloaded()}
	}
	defer release()
	if f := r.check(); f != nil {
		return Reply{Fault: f}
	}
	if f := r.authorise(ctx); f != nil {
		return Reply{Fault: f}
	}
	return r.execute(ctx)
}

// find is step 4: may this principal know the operation.
func (r *run) find(ctx context.Context) *fault.Error {
	if r.req.Surface == fault.Command {
		r.op = r.g.cfg.Catalog.Operation(r.req.Name)
		if r.op == nil || r.op.Publish.Route != nil { // bytes do not go through a command
			r.op = nil
			return fault.New(fault.UnknownTool, "unknown operation %s", catalog.Quote(r.req.Name, 64))
		}
		r.in = orEmpty(r.req.In)
		return nil
	}
	if r.req.Surface == fault.Transfer {
		return r.findRoute()
	}
	view, f := r.g.view(ctx, r.req.Who, r.req.Endpoint)
	if f != nil {
		return f
	}
	r.entry.SurfaceHash = view.Hash
	switch r.req.Surface {
	case fault.Resource:
		return r.findResource(view)
	case fault.Prompt:
		r.op = view.Prompt(r.req.Name)
		if r.op == nil {
			return fault.New(fault.UnknownPrompt, "unknown prompt %s", catalog.Quote(r.req.Name, 64))
		}
	default:
		r.op = view.Tool(r.req.Name)
		if r.op == nil {
			return fault.New(fault.UnknownTool, "unknown tool %s", catalog.Quote(r.req.Name, 64))
		}
	}
	r.in = orEmpty(r.req.In)
	return nil
}

// findRoute finds the operation of a route. Routes are hidden from nobody: they answer that access is denied.
func (r *run) findRoute() *fault.Error {
	op := r.g.cfg.Catalog.Operation(r.req.Name)
	if op == nil || op.Publish.Route == nil || op.KnownOn != (policy.Pattern{}) {
		return fault.New(fault.NotFound, "there is nothing at this path")
	}
	r.op, r.in = op, orEmpty(r.req.In)
	return nil
}

// lookup knows the handles of one tenant.
type lookup struct {
	handles catalog.Handles
	tenant  string
}

// UploadPath implements catalog.Lookup.
func (l lookup) UploadPath(ctx context.Context, namespace, uploadID string) (policy.Path, bool, error) {
	return l.handles.UploadPath(ctx, l.tenant, namespace, uploadID)
}

// findResource finds the operation behind a URI and its input.
func (r *run) findResource(view *catalog.View) *fault.Error {
	op, _, in, ok, err := view.Resource(r.req.Name)
	r.op, r.in = op, in
	if err != nil {
		if f := fault.As(err); f != nil {
			return f
		}
		return fault.New(fault.InvalidRequest, "the resource URI is not well formed").Wrap(err)
	}
	if !ok {
		return fault.New(fault.UnknownResource, "unknown resource %s", catalog.Quote(r.req.Name, 64)).With("uri", catalog.Clip(r.req.Name, 256))
	}
	return nil
}

// orEmpty makes {} of absent arguments.
func orEmpty(v canonjson.Value) canonjson.Value {
	if v.IsAbsent() {
		return canonjson.Object()
	}
	return v
}

// check is step 5: the strict rules and the input schema.
func (r *run) check() *fault.Error {
	r.entry.Operation = r.op.Name
	if r.req.Flaw != nil {
		return fault.New(fault.InvalidRequest, "%s", r.req.Flaw.Message)
	}
	if r.in.Kind() != canonjson.KindObject {
		return fault.New(fault.InvalidRequest, "arguments must be an object")
	}
	if f := r.bound(); f != nil {
		return f
	}
	if err := r.op.In.Check(r.in); err != nil {
		return r.unfit(err)
	}
	if r.op.Validate != nil {
		if err := r.op.Validate(r.in); err != nil {
			return asFault(err)
		}
	}
	return nil
}

// unfit says what does not fit the input schema.
func (r *run) unfit(err error) *fault.Error {
	var se *catalog.SchemaError
	if errors.As(err, &se) && len(se.Arguments) == 1 {
		if words := r.op.Worded[se.Arguments[0]]; words != "" {
			return fault.New(fault.InvalidRequest, "%s", words)
		}
	}
	if se != nil && r.op.Unfit != nil {
		if f := r.op.Unfit(se); f != nil {
			return f
		}
	}
	return fault.New(fault.InvalidRequest, "the arguments do not fit the tool's schema: %s", err)
}

// asFault is err as the fault it is, or an invalid request.
func asFault(err error) *fault.Error {
	if f := fault.As(err); f != nil {
		return f
	}
	return fault.New(fault.InvalidRequest, "the arguments are not valid").Wrap(err)
}

// bound keeps depth and nodes: of the arguments without their free content, and of each free content from itself.
func (r *run) bound() *fault.Error {
	l := r.g.cfg.Limits
	rest, nodes := r.in, 0
	if len(r.op.Content) > 0 {
		rest = r.in.Without(r.op.Content...)
		for _, name := range r.op.Content {
			v := r.in.Get(name)
			if v.IsAbsent() {
				continue
			}
			nodes += v.Nodes()
			if f := tooLarge(name, v, l); f != nil {
				return f
			}
		}
	}
	if rest.HasNULName() {
		return fault.New(fault.InvalidRequest, "a member name in the arguments holds U+0000; names may hold it only inside free content")
	}
	if f := tooLarge("the arguments", rest, l); f != nil {
		return f
	}
	if l.ArgumentNodes > 0 && rest.Nodes() > l.ArgumentNodes {
		return fault.New(fault.InvalidRequest, "the number of values in the arguments is over %d; send fewer at once", l.ArgumentNodes)
	}
	return nil
}

// tooLarge tells when v is deeper or larger than allowed.
func tooLarge(what string, v canonjson.Value, l Limits) *fault.Error {
	if v.Depth() > l.ContentDepth {
		return fault.New(fault.InvalidRequest, "the depth of %s is over %d levels; flatten it", what, l.ContentDepth)
	}
	if v.Nodes() > l.ContentNodes {
		return fault.New(fault.InvalidRequest, "the number of values in %s is over %d; split it", what, l.ContentNodes)
	}
	return nil
}

// authorise is step 6: all targets in one batch, before existence is looked at.
func (r *run) authorise(ctx context.Context) *fault.Error {
	if r.op.AuditTarget != nil {
		r.entry.Target = string(r.op.AuditTarget(r.in))
	}
	if r.op.Capability == "" || r.op.Targets == nil {
		r.entry.Decision = "allow"
		r.entry.Rule = "needs no right"
		return nil
	}
	checks, err := r.op.Targets(ctx, lookup{r.g.cfg.Handles, r.req.Who.Tenant}, r.in)
	if err != nil {
		if f := fault.As(err); f != nil {
			return f
		}
		return noDecision(err)
	}
	if len(checks) == 0 {
		r.entry.Decision, r.entry.Rule = "allow", "decided on each entry"
		return nil
	}
	r.entry.Target, r.entry.Targets = string(checks[0].Path), len(checks)
	decisions, err := r.g.decide(ctx, r.req.Who, checks)
	if err != nil {
		return noDecision(err)
	}
	r.entry.Decision, r.entry.Rule = "allow", decisions[0].Rule
	for i, d := range decisions {
		if !d.Allow {
			r.entry.Decision, r.entry.Rule = "deny", d.Rule
			r.entry.Target = string(checks[i].Path)
			return denied()
		}
	}
	return nil
}

// denied is the one refusal, in the same words whatever exists.
func denied() *fault.Error {
	return fault.New(fault.PolicyDenied, "access denied: ask the operator for the right on this target")
}

// execute is steps 7 to 9.
func (r *run) execute(ctx context.Context) Reply {
	deadline := r.g.cfg.Limits.Deadline
	if r.op.Bounds.Deadline > 0 {
		deadline = r.op.Bounds.Deadline
	}
	if deadline > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, deadline)
		defer cancel()
	}
	call := r.call()
	state, f := r.resume(call)
	if f != nil {
		return Reply{Fault: f}
	}
	if r.op.Confirm != nil && r.op.Confirm(r.in) {
		if ask, f := r.confirm(ctx, call, state); ask != nil || f != nil {
			return Reply{Ask: ask, Fault: f}
		}
	}
	if f := r.intend(ctx); f != nil {
		return Reply{Fault: f}
	}
	result, err := r.guarded(ctx, call)
	if err != nil {
		return r.failed(ctx, err)
	}
	r.entry.Revision, r.entry.Count = result.Revision, result.Count
	if call.Commit != nil && call.Commit.Sealed() && !result.Replayed {
		r.entry.Kind = audit.KindEffect // its row is in the store already, whatever becomes of the answer
	}
	if f := r.checkOutput(ctx, &result); f != nil {
		return Reply{Fault: f}
	}
	return Reply{Result: &result}
}

// intend makes the intent of an effect outside the store durable, before anything happens (security requirements, S61).
// finish writes the outcome; an intent without one reads as unknown.
func (r *run) intend(ctx context.Context) *fault.Error {
	if !r.op.Outside {
		return nil
	}
	intent := r.entry
	intent.Kind, intent.Outcome = audit.KindIntent, "intended"
	if err := r.g.cfg.Recorder.Commit(ctx, intent); err != nil {
		return fault.New(fault.StoreUnavailable, "the audit trail cannot be written, and nothing was changed; retry later").Wrap(err)
	}
	r.intended = true
	return nil
}

// call makes what the operation sees.
func (r *run) call() *catalog.Call {
	c := &catalog.Call{
		Who: r.req.Who, In: r.in, Access: access{r.g, r.req.Who}, Body: r.req.Body, Now: r.entry.Time,
		Progress: r.req.Progress, Log: r.req.Log, Notify: r.g.cfg.Notify, Client: r.req.Client,
	}
	if r.req.Surface == fault.Resource {
		c.URI = r.req.Name
	}
	if c.Progress == nil {
		c.Progress = func(float64, float64, string) {}
	}
	if c.Log == nil {
		c.Log = func(string, canonjson.Value) {}
	}
	print := r.fingerprint()
	r.entry.Input = "sha256:" + hex.EncodeToString(print[:])
	if r.op.Effects.ReadOnly != catalog.Yes {
		entry := r.entry
		entry.Kind, entry.Outcome = audit.KindEffect, "ok"
		c.Commit = &catalog.Commit{
			Namespace: r.in.Get("namespace").Str(), Key: r.in.Get("idempotencyKey").Str(),
			Fingerprint: print, Entry: entry,
		}
	}
	return c
}

// fingerprint is the SHA-256 of the canonical form of {tool, arguments without idempotencyKey} (persistence.v1,
// section 5).
func (r *run) fingerprint() [32]byte {
	v := canonjson.Object(
		canonjson.M("arguments", r.in.Without("idempotencyKey")),
		canonjson.M("tool", canonjson.String(r.op.Name)))
	return sha256.Sum256(v.AppendCanonical(nil))
}

// access answers an operation's further checks.
type access struct {
	g   *Gate
	who *identity.Principal
}

// Allowed asks the decider in one batch.
func (a access) Allowed(ctx context.Context, checks []policy.Check) ([]bool, error) {
	if len(checks) == 0 {
		return nil, nil
	}
	decisions, err := a.g.decide(ctx, a.who, checks)
	if err != nil {
		return nil, noDecision(err)
	}
	out := make([]bool, len(decisions))
	for i, d := range decisions {
		out[i] = d.Allow
	}
	return out, nil
}

// panicked is what a handler's panic becomes.
type panicked struct {
	value any
	stack []byte
}

// Error names the panic for the log.
func (p *panicked) Error() string { return fmt.Sprintf("panic: %v", p.value) }

// guarded runs the handler; a panic ends that call only.
func (r *run) guarded(ctx context.Context, call *catalog.Call) (result catalog.Result, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &panicked{v, debug.Stack()}
		}
	}()
	return r.op.Run(ctx, call)
}

// failed turns a handler's error into the reply.
func (r *run) failed(ctx context.Context, err error) Reply {
	var need *catalog.NeedInput
	if errors.As(err, &need) {
		return r.ask(need)
	}
	if f := fault.As(err); f != nil {
		if f.Unwrap() != nil {
			r.g.cfg.Log.WarnContext(ctx, "call failed", "correlation", r.entry.Correlation, "operation", r.op.Name, "code", f.Code, "cause", f.Unwrap())
		}
		return Reply{Fault: f}
	}
	if ctx.Err() != nil && r.op.Effects.ReadOnly == catalog.Yes {
		if errors.Is(ctx.Err(), context.Canceled) {
			return Reply{Fault: fault.New(fault.Cancelled, "the call was cancelled; nothing happened")}
		}
		return Reply{Fault: fault.New(fault.Busy, "the call took too long and was ended; nothing happened").After(time.Second).Wrap(err)}
	}
	return Reply{Fault: r.internal(ctx, err)}
}

// internal is the answer to a fault of this program: a correlation id, and the cause in the log only. A write whose
// outcome is not known says so.
func (r *run) internal(ctx context.Context, err error) *fault.Error {
	_ = r.logged(ctx, err)
	if r.op != nil && r.op.Effects.ReadOnly != catalog.Yes && r.op.Errors == fault.PersistenceDialect {
		return fault.New(fault.StoreUnavailable, "the outcome is not known (report %s); retry with the same idempotencyKey to settle it", r.entry.Correlation).Wrap(err)
	}
	return fault.New(fault.Internal, "internal error, report %s to the operator", r.entry.Correlation).Wrap(err)
}

// checkOutput is step 9: the declared bounds and the output schema.
func (r *run) checkOutput(ctx context.Context, result *catalog.Result) *fault.Error {
	if result.Value.IsAbsent() {
		return nil
	}
	if r.op.Out != nil && !result.IsError {
		if err := r.op.Out.CheckOutput(result.Value); err != nil {
			return r.internal(ctx, fmt.Errorf("result does not fit the output schema: %w", err))
		}
	}
	result.JSON = result.Value.AppendJSON(nil)
	if f := r.tooLong(result); f != nil {
		return f
	}
	if n := r.op.Bounds.Items; n > 0 && result.Value.Get("items").Len() > n {
		return r.internal(ctx, fmt.Errorf("%d items, declared are %d", result.Value.Get("items").Len(), n))
	}
	return nil
}

// tooLong keeps the size of the answer. An effect has happened and is told whatever its size: a refusal must not have
// one.
func (r *run) tooLong(result *catalog.Result) *fault.Error {
	limit := r.g.cfg.Limits.ResponseBytes
	if r.op.Bounds.Bytes > 0 {
		limit = r.op.Bounds.Bytes
	}
	if limit <= 0 || r.op.Effects.ReadOnly != catalog.Yes || len(result.JSON) <= limit/4 {
		return nil
	}
	if n := wireBytes(result.JSON); n > limit {
		return fault.New(fault.QuotaExceeded, "the answer has %d bytes, more than %d; ask for a smaller page", n, limit)
	}
	return nil
}

// wireBytes is how long a result is in an answer: once as structured content, and once more as the text of a JSON
// string, where each quotation mark and backslash takes two.
func wireBytes(json []byte) int {
	return 2*len(json) + bytes.Count(json, []byte{'"'}) + bytes.Count(json, []byte{'\\'})
}

// finish is step 10: metrics, and the audit entry of what was not committed with an effect.
func (r *run) finish(_ context.Context, reply *Reply) {
	outcome := "ok"
	switch {
	case reply.Fault != nil:
		outcome = string(reply.Fault.Code)
	case reply.Ask != nil:
		outcome = "asked"
	case reply.Result.IsError:
		outcome = "error"
	}
	name := ""
	if r.op != nil {
		name = r.op.Name
	}
	r.g.cfg.Observer.Called(name, r.req.Surface, outcome, time.Since(r.start))
	if r.entry.Kind == audit.KindEffect {
		return
	}
	r.entry.Operation, r.entry.Outcome = name, outcome
	switch {
	case r.intended:
		r.entry.Kind = audit.KindEffect
		r.g.cfg.Recorder.Store(r.entry)
	case reply.Ask != nil:
		r.entry.Kind = audit.KindConfirm
		r.g.cfg.Recorder.Store(r.entry)
	case reply.Fault != nil && crowded(reply.Fault.Code):
		// One row a principal and minute: a caller over his rate must not fill the disk with refusals.
		tell, quiet := r.g.crowd.add(r.req.Who.RateKey()+"\x00"+outcome, true)
		if tell {
			r.entry.Kind, r.entry.Count = audit.KindRefusal, quiet
			r.g.cfg.Recorder.Store(r.entry)
		}
	case reply.Fault != nil && refusal(reply.Fault.Code):
		r.entry.Kind = audit.KindRefusal
		r.g.cfg.Recorder.Store(r.entry)
	default:
		r.entry.Kind = audit.KindRead
		r.g.cfg.Recorder.Read(r.entry)
	}
}

// refusal tells whether a code is a decision against the caller, kept in the store; other failures are lines of
// the file.
func refusal(c fault.Code) bool { return c == fault.PolicyDenied || c == fault.UnauthorizedKey }

// crowded tells whether a code refuses because there are too many calls.
func crowded(c fault.Code) bool { return c == fault.RateLimited || c == fault.Overloaded }

// Explain asks the server's policy one question, for an operator who wants to know what it says and why. It grants
// nothing and is no call.
func (g *Gate) Explain(ctx context.Context, subjects []string, check policy.Check) (policy.Decision, error) {
	decisions, err := g.cfg.Decider.Decide(ctx, subjects, []policy.Check{check})
	if err != nil {
		return policy.Decision{}, noDecision(err)
	}
	if len(decisions) != 1 {
		return policy.Decision{}, noDecision(fmt.Errorf("%d decisions for one check", len(decisions)))
	}
	return decisions[0], nil
}
