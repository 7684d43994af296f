package gate

import (
	"context"
	"errors"
	"runtime/debug"
	"time"

	"github.com/tabellion-mcp/tabellion/fault"
	"github.com/tabellion-mcp/tabellion/internal/audit"
	"github.com/tabellion-mcp/tabellion/internal/catalog"
	"github.com/tabellion-mcp/tabellion/internal/identity"
)

// Tool gives the operation behind a tool's wire name as who may know it; nil when there is none for him. It is for
// rules about the form of a message (which arguments are mirrored in headers) and counts as no call.
func (g *Gate) Tool(ctx context.Context, who *identity.Principal, e catalog.Endpoint, wireName string) *catalog.Operation {
	view, f := g.view(ctx, who, e)
	if f != nil {
		return nil
	}
	return view.Tool(wireName)
}

// Complete proposes values for an argument of the prompt req.Name. It counts as a call. The proposals come from the
// operation, which sees only what the caller may see; an operation without proposals has none.
func (g *Gate) Complete(ctx context.Context, req Request, argument, prefix string) ([]string, *fault.Error) {
	if f := g.admit(req.Who); f != nil {
		return nil, f
	}
	release, ok := g.places.take(ctx, req.Who.RateKey())
	if !ok {
		return nil, overloaded()
	}
	defer release()
	req.Surface = fault.Prompt
	r := &run{g: g, req: &req, start: time.Now(), entry: audit.Entry{Time: g.cfg.Clock.Now(), Correlation: correlation()}}
	if f := r.find(ctx); f != nil {
		return nil, f
	}
	if r.op.Publish.Prompt.Complete == nil {
		return nil, nil
	}
	if g.cfg.Limits.Deadline > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, g.cfg.Limits.Deadline)
		defer cancel()
	}
	call := r.call()
	call.Commit = nil // a proposal changes nothing
	values, err := r.propose(ctx, call, argument, prefix)
	if err == nil {
		return values, nil
	}
	if f := fault.As(err); f != nil {
		return nil, f
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		return nil, fault.New(fault.Cancelled, "the call was cancelled; nothing happened")
	}
	return nil, fault.New(fault.Internal, "internal error, report %s to the operator", r.entry.Correlation).Wrap(r.logged(ctx, err))
}

// propose asks the operation; a panic ends that call only.
func (r *run) propose(ctx context.Context, call *catalog.Call, argument, prefix string) (values []string, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &panicked{v, debug.Stack()}
		}
	}()
	return r.op.Publish.Prompt.Complete(ctx, call, argument, prefix)
}

// logged writes err to the operator's log and returns it.
func (r *run) logged(ctx context.Context, err error) error {
	attrs := []any{"correlation", r.entry.Correlation, "error", err}
	if r.op != nil {
		attrs = append(attrs, "operation", r.op.Name)
	}
	var p *panicked
	if errors.As(err, &p) {
		attrs = append(attrs, "stack", string(p.stack))
	}
	r.g.cfg.Log.ErrorContext(ctx, "internal error", attrs...)
	return err
}
