package gate

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"time"

	"github.com/tabellion-mcp/tabellion/fault"
	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/catalog"
	"github.com/tabellion-mcp/tabellion/internal/seal"
)

// stateLife is how long a request state is good, confirmLife a confirmation (security requirements, section 3).
const (
	stateLife   = 10 * time.Minute
	confirmLife = 5 * time.Minute
)

// confirmKey is the request key of a confirmation.
const confirmKey = "confirm"

// badState is the one answer to every request state that does not open.
func badState() *fault.Error {
	return fault.New(fault.InvalidParams, "the request state is not valid; call again without it")
}

// bind is what a sealed state is bound to: the operation, the principal and the arguments.
func (r *run) bind() []byte {
	return []byte(r.op.Name + "\x00" + r.req.Who.Tenant + "\x00" + r.req.Who.Subject + "\x00" + r.entry.Input)
}

// resume opens the state that came back, and puts the operation's part and the answers into the call. The returned
// value is the gate's own part; Absent when the call is no resumption.
func (r *run) resume(call *catalog.Call) (canonjson.Value, *fault.Error) {
	if r.req.Resume == nil {
		return canonjson.Value{}, nil
	}
	call.Answers = r.req.Resume.Answers
	if r.req.Resume.State == "" {
		return canonjson.Value{}, nil
	}
	plain, err := r.g.cfg.Sealer.Open(seal.PurposeState, r.bind(), r.req.Resume.State)
	if err != nil {
		return canonjson.Value{}, badState()
	}
	state, err := canonjson.ParseStrict(plain, FrameLimits())
	if err != nil {
		return canonjson.Value{}, badState()
	}
	call.State = state.Get("state")
	return state, nil
}

// ask seals what the operation wants to keep and asks.
func (r *run) ask(need *catalog.NeedInput) Reply {
	if f := capable(need.Requests, r.req.Client); f != nil {
		return Reply{Fault: f}
	}
	m := []canonjson.Member{canonjson.M("state", need.State)}
	if r.confirmed != nil {
		// The person is not asked again when the answers come. Like a question, this is good once.
		m = append(m, canonjson.M("confirmed", canonjson.Bool(true)), nonceMember(), canonjson.M("version", canonjson.String(*r.confirmed)))
	}
	return r.sealed(need.Requests, canonjson.Object(m...), stateLife)
}

// nonceMember is what makes a sealed state good once.
func nonceMember() canonjson.Member {
	var nonce [16]byte
	rand.Read(nonce[:])
	return canonjson.M("nonce", canonjson.String(hex.EncodeToString(nonce[:])))
}

// sealed makes the reply that asks.
func (r *run) sealed(requests []catalog.InputRequest, state canonjson.Value, life time.Duration) Reply {
	text, err := r.g.cfg.Sealer.Seal(seal.PurposeState, life, r.bind(), state.AppendCanonical(nil))
	if err != nil {
		return Reply{Fault: noDecision(err)}
	}
	return Reply{Ask: &Ask{Requests: requests, State: text}}
}

// capable refuses to ask what the client said it cannot answer.
func capable(requests []catalog.InputRequest, c catalog.ClientCaps) *fault.Error {
	for _, q := range requests {
		var name string
		var ok bool
		switch q.Method {
		case "elicitation/create":
			name, ok = "elicitation", c.Elicitation
		case "sampling/createMessage":
			name, ok = "sampling", c.Sampling
		case "roots/list":
			name, ok = "roots", c.Roots
		}
		if !ok {
			return fault.New(fault.MissingCapability, "this call needs the client capability %q", name).
				With("requiredCapabilities", canonjson.Object(canonjson.M(name, canonjson.Object())))
		}
	}
	return nil
}

// confirm is step 7. It returns an Ask when the person must be asked (again), a fault when he declined, and neither
// when the call may go on. A confirmation is bound to the exact arguments, the principal and the target's version,
// and is good once.
func (r *run) confirm(ctx context.Context, call *catalog.Call, state canonjson.Value) (*Ask, *fault.Error) {
	preview, err := r.op.Preview(ctx, call)
	if err != nil {
		if f := fault.As(err); f != nil {
			return nil, f
		}
		return nil, r.internal(ctx, err)
	}
	nonce := state.Get("nonce").Str()
	if nonce == "" || state.Get("version").Str() != preview.Version {
		return r.question(preview)
	}
	if !state.Get("confirmed").Bool() {
		answer := call.Answers.Get(confirmKey)
		if answer.IsAbsent() {
			return r.question(preview)
		}
		if answer.Get("action").Str() != "accept" || !answer.Get("content").Get("confirm").Bool() {
			return nil, fault.New(fault.PolicyDenied, "the call was not confirmed; nothing was done")
		}
	}
	first, err := r.g.cfg.Once.Once(ctx, "confirm:"+nonce, r.entry.Time.Add(2*confirmLife))
	if err != nil {
		return nil, noDecision(err)
	}
	if !first {
		return nil, badState()
	}
	r.confirmed, r.entry.Note = &preview.Version, "confirmed"
	if call.Commit != nil {
		call.Commit.Entry.Note = r.entry.Note
	}
	return nil, nil
}

// question asks a person to confirm.
func (r *run) question(p catalog.Preview) (*Ask, *fault.Error) {
	request := catalog.InputRequest{Key: confirmKey, Method: "elicitation/create", Params: canonjson.Object(
		canonjson.M("mode", canonjson.String("form")),
		canonjson.M("message", canonjson.String(p.Message)),
		canonjson.M("requestedSchema", canonjson.Raw([]byte(
			`{"properties":{"confirm":{"description":"Do it","title":"Confirm","type":"boolean"}},"required":["confirm"],"type":"object"}`))))}
	if f := capable([]catalog.InputRequest{request}, r.req.Client); f != nil {
		return nil, f
	}
	reply := r.sealed([]catalog.InputRequest{request}, canonjson.Object(
		nonceMember(),
		canonjson.M("version", canonjson.String(p.Version))), confirmLife)
	return reply.Ask, reply.Fault
}
