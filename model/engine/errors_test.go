package engine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/clock"
	"github.com/tabellion-mcp/tabellion/model"
	"github.com/tabellion-mcp/tabellion/model/engine"
	"github.com/tabellion-mcp/tabellion/model/plan"
)

// broken is a source that fails.
type broken struct {
	plan.Source
	err     error
	applied []*plan.Write
}

func (b *broken) Read(context.Context, *plan.Query) (*plan.Rows, error) { return nil, b.err }
func (b *broken) Apply(_ context.Context, w *plan.Write, _ plan.Commit) (*plan.Applied, error) {
	b.applied = append(b.applied, w)
	if b.err != nil {
		return nil, b.err
	}
	row := plan.ReadRow{Cells: make([]canonjson.Value, len(w.Model.Fields))}
	for _, fv := range w.Rows[0] {
		for i, f := range w.Model.Fields {
			if f == fv.Field {
				row.Cells[i] = fv.Value
			}
		}
	}
	return &plan.Applied{Rows: []plan.ReadRow{row}}, nil
}

// brokenEngine has one model, Item, over a source that fails.
func brokenEngine(t *testing.T, source *broken, cfg engine.Config) *engine.Engine {
	t.Helper()
	cfg.Registry = model.NewRegistry(model.Options{})
	if err := cfg.Registry.Register(parse(t, `{"name":"Item","idPrefix":"IT","fields":{"_id":"string","n":"int"}}`)); err != nil {
		t.Fatal(err)
	}
	cfg.Permission, cfg.Sources = openRules(nil), map[string]plan.Source{"default": source}
	e, err := engine.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// TestFailuresOfSources: each has its class, and no text of a driver reaches a caller.
func TestFailuresOfSources(t *testing.T) {
	const secret = "dial tcp 10.0.0.7: password authentication failed for user app"
	driver := errors.New(secret)
	for _, tt := range []struct {
		err         error
		read, write model.Class
	}{
		{fmt.Errorf("%w: %w", plan.ErrBusy, driver), model.Busy, model.Busy},
		{fmt.Errorf("%w: %w", plan.ErrUnavailable, driver), model.Unreachable, model.Unreachable},
		{fmt.Errorf("%w: %w", plan.ErrUnknown, driver), model.Unknown, model.Unknown},
		{driver, model.Unreachable, model.Unreachable},
		{fmt.Errorf("%w: %w", plan.ErrReadOnly, driver), "", model.ReadOnly},
		{fmt.Errorf("%w: %w", plan.ErrOutside, driver), "", model.Denied},
		{fmt.Errorf("%w: %w", plan.ErrKeyConflict, driver), "", model.Idempotency},
		{fmt.Errorf("%w: %w", plan.ErrNoKeys, driver), "", model.Idempotency},
		{fmt.Errorf("%w: %w", plan.ErrNotAtomic, driver), "", model.Unsupported},
		{&plan.ConstraintError{Kind: "check", Cause: driver}, "", model.Constraint},
		{&plan.VersionError{Current: canonjson.Int(7)}, "", model.Version},
		{model.Errorf(model.Limit, "too much"), model.Limit, model.Limit},
	} {
		source := &broken{err: tt.err}
		e := brokenEngine(t, source, engine.Config{})
		if tt.read != "" {
			_, err := e.Query(t.Context(), internal(), "Item{ n }", canonjson.Value{}, engine.Page{})
			refused(t, fmt.Sprint("query: ", tt.err), err, tt.read, nil, []string{"10.0.0.7", "password"})
			_, err = e.Count(t.Context(), internal(), "Item", canonjson.Value{})
			refused(t, fmt.Sprint("count: ", tt.err), err, tt.read, nil, []string{"10.0.0.7", "password"})
		}
		_, err := e.Insert(t.Context(), internal(), "Item", parse(t, `{"n":1}`))
		refused(t, fmt.Sprint("insert: ", tt.err), err, tt.write, nil, []string{"10.0.0.7", "password"})
		if errors.Is(tt.err, driver) && !errors.Is(err, driver) {
			t.Errorf("%v: the operator's log has lost the cause", tt.err)
		}
	}
}

// TestEndedCalls: a call whose context has ended says that nothing happened, unless that is not known.
func TestEndedCalls(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	e := brokenEngine(t, &broken{err: context.Canceled}, engine.Config{})
	_, err := e.Query(ctx, internal(), "Item{ n }", canonjson.Value{}, engine.Page{})
	refused(t, "query", err, model.Busy, []string{"nothing happened"}, nil)
	e = brokenEngine(t, &broken{err: fmt.Errorf("%w: %w", plan.ErrUnknown, context.Canceled)}, engine.Config{})
	_, err = e.Insert(ctx, internal(), "Item", parse(t, `{"n":1}`))
	refused(t, "insert", err, model.Unknown, nil, []string{"nothing happened"})
}

// TestIDs: the prefix, the time in base 36, eight random characters; and no write without randomness.
func TestIDs(t *testing.T) {
	source := &broken{}
	at := clock.NewManual(time.UnixMilli(1_700_000_000_123))
	random := bytes.NewReader([]byte{0, 35, 36, 251, 252, 255, 1, 2, 3, 4})
	e := brokenEngine(t, source, engine.Config{Clock: at, Random: random})
	doc, err := e.Insert(t.Context(), internal(), "Item", parse(t, `{}`))
	// 252 and 255 are passed over: they would make the first characters likelier.
	if want := "ITLOYW3V5N0Z0Z1234"; err != nil || doc.Get("_id").Str() != want {
		t.Errorf("got %v %v, want %s", doc, err, want)
	}
	_, err = e.Insert(t.Context(), internal(), "Item", parse(t, `{}`))
	if !errors.Is(err, io.EOF) || len(source.applied) != 1 {
		t.Errorf("without randomness: %v, %d writes", err, len(source.applied))
	}
}

// TestExplain shows the plan and the statements, and sends nothing.
func TestExplain(t *testing.T) {
	w := fixtures(t, sqlitePlace(t))
	w.source.last = nil
	got, err := w.engine.Explain(t.Context(), as(user("u3", "student")), "Course($condition:@c,$sort:@s,$limit:@l){ title, lessonCount, lessons { title } }",
		parse(t, `{"c":{"price":{"$gt":50},"$or":[{"status":"draft"},{"lessons":{"$exists":true}}]},"s":{"price":-1},"l":5}`))
	if err != nil {
		t.Fatal(err)
	}
	for pointer, want := range map[string]string{
		"/model": `"Course"`, "/limit": `5`, "/order/0": `{"by":"price","direction":"desc"}`, "/where/and/0": `{"test":">","of":"price","value":50}`,
		"/where/and/1/or/1/model": `"Lesson"`, "/aggregates/0/op": `"$count"`, "/relations/0/relation": `"lessons"`,
	} {
		same(t, pointer, got.Plan.At(pointer), want)
	}
	if len(got.Statements) < 2 || !strings.HasPrefix(got.Statements[0], "SELECT") || w.source.last != nil {
		t.Errorf("statements %q, read %v", got.Statements, w.source.last)
	}
}
