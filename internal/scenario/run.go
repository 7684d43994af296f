package scenario

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// Outputs are output schemas by the name of their tool.
type Outputs map[string]*jsonschema.Schema

// Runner runs scenarios against one target.
type Runner struct {
	Target Target
	Hooks  Hooks
	// Outputs is for the check that every success fits its tool's schema. Nil: no check.
	Outputs Outputs
	// Patience is for transfers that the server refuses for now, where the scenario does not expect that. Calls are the
	// Target's to repeat.
	Patience Patience

	vars    map[string]any
	spaces  map[string]string // namespace by artifact id, of the artifacts begun
	uploads []begun           // of this scenario, in this order
}

// Run runs the steps of s and tells the first that fails.
func (r *Runner) Run(ctx context.Context, s *Scenario) error {
	r.vars, r.spaces, r.uploads = map[string]any{}, map[string]string{}, nil
	for i, st := range s.Steps {
		if err := r.step(ctx, st, r.vars); err != nil {
			return fmt.Errorf("step %d: %w", i+1, err)
		}
	}
	return nil
}

// step runs one step.
func (r *Runner) step(ctx context.Context, st Step, vars map[string]any) error {
	switch {
	case st.Parallel != nil:
		return r.parallel(ctx, st, vars)
	case st.Pages != nil:
		return r.pages(ctx, st, vars)
	case st.Repeat > 0:
		return r.repeat(ctx, st, vars)
	case st.Tamper != "":
		return tamper(st, vars)
	case st.HTTP != nil:
		return r.http(ctx, st, vars)
	case st.Resource != "":
		return r.resource(ctx, st, vars)
	case st.Tool != "":
		return r.tool(ctx, st, vars)
	}
	return r.hook(st, vars)
}

// hook runs a step that the target's surroundings do, not its callers.
func (r *Runner) hook(st Step, vars map[string]any) error {
	h := r.Hooks
	switch {
	case st.AdvanceSeconds != nil && h.Advance != nil:
		h.Advance(*st.AdvanceSeconds)
		return nil
	case st.Restart != "" && h.Restart != nil:
		return h.Restart(st.Restart == "kill")
	case st.SetGrants != nil && h.SetGrants != nil:
		return h.SetGrants(*st.SetGrants)
	case st.Fault != "" && h.Fault != nil:
		return h.Fault(st.Fault)
	case st.CorruptBlob != "" && h.CorruptBlob != nil:
		id := fill(st.CorruptBlob, vars)
		return h.CorruptBlob(r.spaces[id], id)
	}
	return fmt.Errorf("a step of no known kind, or the target lacks the hook for it")
}

// arguments is the text of a step's arguments with variables and generators filled in.
func arguments(args json.RawMessage, raw *string, vars map[string]any) ([]byte, error) {
	if raw != nil {
		return []byte(fill(*raw, vars)), nil
	}
	v, err := decode(args)
	if err != nil {
		return nil, err
	}
	if v, err = expand(v, vars); err != nil {
		return nil, err
	}
	return encode(v)
}

// tool runs a tool step.
func (r *Runner) tool(ctx context.Context, st Step, vars map[string]any) error {
	args, err := arguments(st.Args, st.RawArgs, vars)
	if err != nil {
		return err
	}
	a, err := r.Target.Call(ctx, st.As, st.Tool, args)
	if err != nil {
		return fmt.Errorf("%s: %w", st.Tool, err)
	}
	r.note(st, a)
	if st.DropResponse {
		return nil
	}
	if err := r.expect(st.Tool, st.Expect, a, vars); err != nil {
		return fmt.Errorf("%s as %s: %w", st.Tool, st.As, err)
	}
	for name, pointer := range st.Save {
		v, ok := at(a.Structured, pointer)
		if !ok {
			return fmt.Errorf("%s: nothing at %s to save", st.Tool, pointer)
		}
		vars[name] = v
	}
	return nil
}

// resource runs a resource step.
func (r *Runner) resource(ctx context.Context, st Step, vars map[string]any) error {
	uri := fill(st.Resource, vars)
	a, err := r.Target.Read(ctx, st.As, uri)
	if err != nil {
		return fmt.Errorf("read %s: %w", uri, err)
	}
	if err := r.expectResource(st.Expect, a, vars); err != nil {
		return fmt.Errorf("read %s as %s: %w", uri, st.As, err)
	}
	return nil
}

// repeat runs a step n times with ${i}.
func (r *Runner) repeat(ctx context.Context, st Step, vars map[string]any) error {
	for i := range st.Repeat {
		vars["i"] = fmt.Sprintf("%03d", i)
		if err := r.step(ctx, *st.Step, vars); err != nil {
			return fmt.Errorf("repetition %d: %w", i, err)
		}
	}
	delete(vars, "i")
	return nil
}

// parallel sends tool steps at the same time and counts outcomes.
func (r *Runner) parallel(ctx context.Context, st Step, vars map[string]any) error {
	outcomes, answers := make([]string, len(st.Parallel)), make([]Answer, len(st.Parallel))
	var wg sync.WaitGroup
	for i, inner := range st.Parallel {
		wg.Go(func() { outcomes[i], answers[i] = r.outcome(ctx, inner, maps.Clone(vars)) })
	}
	wg.Wait()
	for i, inner := range st.Parallel {
		r.note(inner, answers[i])
	}
	var want struct {
		Tally map[string]json.RawMessage `json:"tally"`
	}
	if err := json.Unmarshal(st.Expect, &want); err != nil {
		return err
	}
	return checkTally(outcomes, want.Tally)
}

// outcome runs one parallel call and names what came of it.
func (r *Runner) outcome(ctx context.Context, st Step, vars map[string]any) (string, Answer) {
	args, err := arguments(st.Args, st.RawArgs, vars)
	if err != nil {
		return err.Error(), Answer{}
	}
	a, err := r.Target.Call(ctx, st.As, st.Tool, args)
	switch {
	case err != nil:
		return err.Error(), Answer{}
	case a.RPC != nil:
		return fmt.Sprint(a.RPC.Code), a
	case a.IsError:
		code, _ := at(a.Structured, "/error/code")
		return fmt.Sprint(code), a
	}
	return "ok", a
}

// checkTally compares counted outcomes with the expected ones, alternatives in $or, and outcomes free in number in
// $each.
func checkTally(outcomes []string, want map[string]json.RawMessage) error {
	got := map[string]int{}
	for _, o := range outcomes {
		got[o]++
	}
	if each, ok := want["$each"]; ok {
		var allowed []string
		if err := json.Unmarshal(each, &allowed); err != nil {
			return err
		}
		for o := range got {
			if !slices.Contains(allowed, o) {
				return fmt.Errorf("outcome %q is none of %v", o, allowed)
			}
		}
		return nil
	}
	plain := map[string]int{}
	for k, v := range want {
		if k == "$or" {
			continue
		}
		var n int
		if err := json.Unmarshal(v, &n); err != nil {
			return err
		}
		plain[k] = n
	}
	options := []map[string]int{plain}
	if or, ok := want["$or"]; ok {
		var more []map[string]int
		if err := json.Unmarshal(or, &more); err != nil {
			return err
		}
		options = append(options, more...)
	}
	for _, o := range options {
		if maps.Equal(o, got) {
			return nil
		}
	}
	return fmt.Errorf("outcomes %v, want one of %v", got, options)
}

// maxPages ends a listing that never ends.
const maxPages = 2000

// pages follows nextCursor and compares the ids.
func (r *Runner) pages(ctx context.Context, st Step, vars map[string]any) error {
	var want struct {
		IDs       []any `json:"ids"`
		MinPages  int   `json:"minPages"`
		EmptyPage bool  `json:"emptyPage"`
	}
	if err := strict(st.Expect, &want); err != nil {
		return err
	}
	v, err := decode(st.Pages.Args)
	if err != nil {
		return err
	}
	if v, err = expand(v, vars); err != nil {
		return err
	}
	args, member := v.(map[string]any), "id"
	if strings.HasSuffix(st.Pages.Tool, "listRevisions") {
		member = "revision"
	}
	ids, pages, empty, err := r.collect(ctx, st.Pages, args, member)
	if err != nil {
		return err
	}
	if fmt.Sprint(ids...) != fmt.Sprint(want.IDs...) || len(ids) != len(want.IDs) {
		return fmt.Errorf("ids %v, want %v", ids, want.IDs)
	}
	if pages < want.MinPages {
		return fmt.Errorf("%d pages, want at least %d", pages, want.MinPages)
	}
	if want.EmptyPage && !empty {
		return fmt.Errorf("no page was empty")
	}
	return nil
}

// collect reads all pages.
func (r *Runner) collect(ctx context.Context, p *Pages, args map[string]any, member string) (ids []any, pages int, empty bool, err error) {
	for pages < maxPages {
		text, err := encode(args)
		if err != nil {
			return nil, 0, false, err
		}
		a, err := r.Target.Call(ctx, p.As, p.Tool, text)
		if err != nil {
			return nil, 0, false, err
		}
		if err := r.success(p.Tool, a); err != nil {
			return nil, 0, false, err
		}
		pages++
		items, _ := at(a.Structured, "/items")
		list, _ := items.([]any)
		empty = empty || len(list) == 0
		for _, item := range list {
			id, _ := at(item, "/"+member)
			ids = append(ids, id)
		}
		next, ok := at(a.Structured, "/nextCursor")
		if !ok {
			return ids, pages, empty, nil
		}
		args["cursor"] = next
	}
	return nil, 0, false, fmt.Errorf("more than %d pages", maxPages)
}
