package operator_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tabellion-mcp/tabellion/fault"
	"github.com/tabellion-mcp/tabellion/internal/audit"
	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/catalog"
	"github.com/tabellion-mcp/tabellion/internal/clock"
	"github.com/tabellion-mcp/tabellion/internal/gate"
	"github.com/tabellion-mcp/tabellion/internal/identity"
	"github.com/tabellion-mcp/tabellion/internal/operator"
	"github.com/tabellion-mcp/tabellion/internal/seal"
	"github.com/tabellion-mcp/tabellion/internal/store/sqlite"
	"github.com/tabellion-mcp/tabellion/persistence"
	"github.com/tabellion-mcp/tabellion/policy"
)

// holdings is a server over a store on the disk: ana may do everything as operator, otto may read, rita may read all but
// the audit trail.
type holdings struct {
	server
	disk *sqlite.Store
}

// newHoldings makes one in a folder. further changes its configuration.
func newHoldings(t *testing.T, dir string, further func(*operator.Config)) *holdings {
	t.Helper()
	h := &holdings{server: server{clock: clock.NewManual(start), audit: &entries{}}}
	var err error
	h.disk, err = sqlite.Open(context.Background(), dir, sqlite.Options{Clock: h.clock})
	must(t, err)
	t.Cleanup(func() { h.disk.Close() })
	cfg := operator.Config{Store: h.disk, Artifacts: h.artifacts, Quota: 1000, Trail: h.disk, Reads: filepath.Join(dir, "reads"),
		Verify: func(context.Context) (audit.Report, error) { return audit.Report{}, nil }}
	if further != nil {
		further(&cfg)
	}
	h.catalog, err = catalog.New(catalog.ContractNames, operator.Operations(cfg)...)
	must(t, err)
	h.gate = h.newGate(t)
	return h
}

// newGate puts the catalog behind a gate.
func (h *holdings) newGate(t *testing.T) *gate.Gate {
	decider, err := policy.New(policy.Config{
		Roles: map[string][]string{"chief": {"operator.read", "operator.admin"}, "looker": {"operator.read"}},
		Assignments: []policy.Assignment{
			{Subject: "user:ana", Role: "chief", On: "/operator/**"}, {Subject: "user:otto", Role: "looker", On: "/operator/**"},
			{Subject: "user:rita", Role: "looker", On: "/operator/**"},
		},
		Denies: []policy.Deny{{Subject: "user:rita", On: "/operator/audit"}},
	})
	must(t, err)
	sealer, err := seal.New(context.Background(), h.disk, h.clock, rand.Reader)
	must(t, err)
	log := slog.New(slog.DiscardHandler)
	auth, err := identity.NewAuthenticator(identity.Config{Keys: h.disk, Clock: h.clock, Log: log})
	must(t, err)
	t.Cleanup(func() { must(t, auth.Close(context.Background())) })
	limits := gate.DefaultLimits()
	limits.Rate = 0
	return gate.New(gate.Config{Catalog: h.catalog, Decider: decider, Auth: auth, Sealer: sealer, Recorder: h.audit, Once: h.disk,
		Limits: limits, Clock: h.clock, Log: log})
}

// artifacts lists the artifacts of the disk.
func (h *holdings) artifacts(ctx context.Context, fn func(namespace, id string) error) error {
	i, err := h.disk.Inspect(ctx)
	if err != nil {
		return err
	}
	defer i.Close()
	return i.Needs(func(n sqlite.Need) error { return fn(n.Namespace, n.ID) })
}

// write changes the store in one transaction.
func (h *holdings) write(t *testing.T, namespace string, fn func(persistence.Tx) error) {
	t.Helper()
	_, err := h.disk.Update(context.Background(), persistence.Commit{Namespace: namespace, Now: h.clock.Now()}, func(tx persistence.Tx) (persistence.Outcome, error) {
		return persistence.Outcome{}, fn(tx)
	})
	must(t, err)
}

// put writes a revision at the clock's time. payload "" is a tombstone.
func (h *holdings) put(t *testing.T, namespace, id string, revision int64, payload string, refs ...persistence.Ref) {
	t.Helper()
	now := persistence.Truncate(h.clock.Now())
	d := &persistence.Document{Namespace: namespace, ID: id, Kind: "k", SchemaVersion: "1", Revision: revision,
		CreatedAt: start, UpdatedAt: now, Payload: []byte(payload), References: refs, Deleted: payload == ""}
	if d.Deleted {
		d.Payload = []byte("null")
	}
	h.write(t, namespace, func(tx persistence.Tx) error { return tx.PutRevision(d) })
}

// artifact writes an artifact at the clock's time.
func (h *holdings) artifact(t *testing.T, namespace, id string, size int64) {
	t.Helper()
	a := &persistence.Artifact{Namespace: namespace, ID: id, MimeType: "text/plain", Size: size, Hash: sha256.Sum256([]byte(id)),
		CreatedAt: persistence.Truncate(h.clock.Now()), Provenance: []byte("{}")}
	h.write(t, namespace, func(tx persistence.Tx) error { return tx.PutArtifact(a) })
}

// refTo refers to a revision; revision 0 to an artifact.
func refTo(namespace, id string, revision int64) persistence.Ref {
	r := persistence.Ref{Type: persistence.RefDocument, Namespace: namespace, ID: id, Revision: revision}
	if revision == 0 {
		r.Type = persistence.RefArtifact
	}
	return r
}

// wantFault wants a fault with words in it.
func (h *holdings) wantFault(t *testing.T, operation, in string, code fault.Code, words string) {
	t.Helper()
	reply := h.try(t, "ana", operation, in)
	if reply.Fault == nil || reply.Fault.Code != code || !strings.Contains(reply.Fault.Message, words) {
		t.Errorf("%s %s: %v, want %s with %q", operation, in, reply.Fault, code, words)
	}
}

// Namespaces are shown with what they hold, tenants apart, page by page and by name.
func TestNamespaces(t *testing.T) {
	h := newHoldings(t, t.TempDir(), nil)
	h.put(t, "a", "x", 1, `"12345678"`)
	h.put(t, "a", "x", 2, `1`)
	h.put(t, "a", "y", 1, `1`)
	h.put(t, "a", "y", 2, ``)
	h.artifact(t, "a", "art", 239)
	h.put(t, "a.b", "x", 1, `1`)
	h.put(t, "crew:a", "x", 1, `22`)
	h.write(t, "b", func(tx persistence.Tx) error {
		return tx.PutUpload(&persistence.Upload{Namespace: "b", ID: "u", ArtifactID: "art", Owner: "o", MimeType: "text/plain", Size: 500, ExpiresAt: start.Add(time.Hour), State: persistence.UploadPending, Provenance: []byte("{}")})
	})
	got := h.run(t, "operator.namespaces", `{}`)
	want := `{"namespace":"a","documents":1,"deleted":1,"revisions":4,"artifacts":1,"uploads":0,"bytes":251,"reserved":0,"quota":1000,"share":0.251}`
	if got.Get("namespaces").Len() != 4 || !sameMembers(got.At("/namespaces/0"), want) {
		t.Errorf("got %s, first want %s", got, want)
	}
	if b := got.At("/namespaces/2"); b.Get("uploads").String() != "1" || b.Get("reserved").String() != "500" || b.Get("share").Float() != 0.5 {
		t.Errorf("b: %s", b)
	}
	if c := got.At("/namespaces/3"); c.Get("namespace").Str() != "a" || c.Get("tenant").Str() != "crew" {
		t.Errorf("the namespace of a tenant: %s", c)
	}
	var names []string
	for after := ""; ; {
		page := h.run(t, "operator.namespaces", `{"limit":1,"after":"`+after+`"}`)
		for _, n := range page.Get("namespaces").Items() {
			names = append(names, n.Get("tenant").Str()+":"+n.Get("namespace").Str())
		}
		if after = page.Get("next").Str(); after == "" {
			break
		}
	}
	if fmt.Sprint(names) != "[:a :a.b :b crew:a]" {
		t.Errorf("by pages: %v", names)
	}
	one := h.run(t, "operator.namespaces", `{"namespace":"a","tenant":"crew"}`)
	if one.Get("namespaces").Len() != 1 || one.At("/namespaces/0/bytes").String() != "2" || !one.Get("next").IsAbsent() {
		t.Errorf("by name: %s", one)
	}
	h.wantFault(t, "operator.namespaces", `{"namespace":"aa"}`, fault.NotFound, "holds nothing")
	h.wantFault(t, "operator.namespaces", `{"tenant":"crew"}`, fault.InvalidRequest, "name the namespace")
}

// sameMembers tells whether v has exactly the members of a JSON text.
func sameMembers(v canonjson.Value, text string) bool {
	want, err := canonjson.ParseStrict([]byte(text), canonjson.Limits{})
	return err == nil && v.Equal(want)
}

// The references to a revision and to an artifact are listed from all namespaces, page by page.
func TestInbound(t *testing.T) {
	h := newHoldings(t, t.TempDir(), nil)
	h.put(t, "a", "x", 1, `1`)
	h.put(t, "a", "x", 2, `1`)
	h.artifact(t, "a", "art", 1)
	h.put(t, "b", "m", 1, `1`, refTo("a", "x", 1), refTo("a", "art", 0))
	h.put(t, "b", "m", 2, `1`, refTo("a", "x", 1), refTo("a", "x", 1))
	h.put(t, "crew:b", "m", 1, `1`, refTo("a", "x", 1))
	var found []string
	for after := ""; ; {
		page := h.run(t, "operator.inbound", `{"namespace":"a","id":"x","revision":1,"limit":1,"after":"`+after+`"}`)
		for _, r := range page.Get("references").Items() {
			found = append(found, fmt.Sprint(r.Get("tenant").Str(), ":", r.Get("namespace").Str(), "/", r.Get("id").Str(), "@", r.Get("revision"), r.Get("newest").Bool()))
		}
		if after = page.Get("next").Str(); after == "" {
			break
		}
	}
	if fmt.Sprint(found) != "[:b/m@1 false :b/m@2 true crew:b/m@1 true]" {
		t.Errorf("found %v", found)
	}
	if got := h.run(t, "operator.inbound", `{"namespace":"a","id":"art"}`); got.Get("references").Len() != 1 || !got.Get("exists").Bool() {
		t.Errorf("the artifact: %s", got)
	}
	if got := h.run(t, "operator.inbound", `{"namespace":"a","id":"x","revision":2}`); got.Get("references").Len() != 0 {
		t.Errorf("the newest: %s", got)
	}
	h.wantFault(t, "operator.inbound", `{"namespace":"a","id":"x"}`, fault.NotFound, "as x@2 for its newest")
	h.wantFault(t, "operator.inbound", `{"namespace":"a","id":"x","revision":3}`, fault.NotFound, "its newest is 2")
	h.wantFault(t, "operator.inbound", `{"namespace":"a","id":"no"}`, fault.NotFound, "no such artifact or document")
	h.wantFault(t, "operator.inbound", `{"namespace":"a","id":"x","revision":1,"after":"b"}`, fault.InvalidRequest, "not the next of a page")
}

// The retention report counts what is old enough, apart what is referred to, and agrees with what can be purged.
func TestRetention(t *testing.T) {
	keep := 10 * 24 * time.Hour
	h := newHoldings(t, t.TempDir(), func(c *operator.Config) { c.Retention = &keep })
	h.artifact(t, "a", "old", 50)
	h.artifact(t, "a", "cited", 60)
	h.put(t, "a", "x", 1, `"12345678"`)
	h.put(t, "a", "y", 1, `"1234"`, refTo("a", "cited", 0))
	h.put(t, "b", "z", 1, `1`)
	h.clock.Advance(24 * time.Hour)
	h.put(t, "a", "x", 2, ``)
	h.put(t, "a", "x", 3, `22`)
	h.put(t, "a", "y", 2, `"1234"`, refTo("a", "y", 1))
	h.clock.Advance(keep)
	h.put(t, "a", "x", 4, `1`) // x@3 is superseded, not for long enough
	h.artifact(t, "a", "new", 70)
	got := h.run(t, "operator.retention", `{}`)
	// x@1 (10 bytes), x@2 (a tombstone, superseded at once), y@1 (referred to by y@2); old, and cited (by y@1).
	want := `{"namespace":"a","revisions":3,"revisionsBlocked":1,"artifacts":2,"artifactsBlocked":1,"bytes":60}`
	if got.Get("namespaces").Len() != 2 || !sameMembers(got.At("/namespaces/0"), want) || got.Get("retention").Str() != "240h0m0s" {
		t.Errorf("got %s, want %s", got, want)
	}
	if b := got.At("/namespaces/1"); b.Get("revisions").String() != "0" || b.Get("bytes").String() != "0" {
		t.Errorf("a namespace without anything old: %s", b)
	}
	all := h.run(t, "operator.retention", `{"age":"0s","namespace":"a"}`)
	if a := all.At("/namespaces/0"); a.Get("revisions").String() != "4" || a.Get("artifacts").String() != "3" || a.Get("bytes").String() != "132" || all.Get("namespaces").Len() != 1 {
		t.Errorf("of any age: %s", all)
	}
	if none := h.run(t, "operator.retention", `{"age":"12d"}`).At("/namespaces/0"); none.Get("revisions").String() != "0" || none.Get("artifacts").String() != "0" {
		t.Errorf("older than all: %s", none)
	}
	h.wantFault(t, "operator.retention", `{"age":"soon"}`, fault.InvalidRequest, "90d")
	forever := newHoldings(t, t.TempDir(), nil)
	forever.put(t, "a", "x", 1, `1`)
	forever.put(t, "a", "x", 2, `2`)
	if got := forever.run(t, "operator.retention", `{"age":"0s"}`); got.At("/namespaces/0/revisions").String() != "1" {
		t.Errorf("of age 0: %s", got)
	}
	if got := forever.run(t, "operator.retention", `{}`); !got.Get("before").IsAbsent() || got.Get("namespaces").Len() == 0 || got.At("/namespaces/0/revisions").String() != "0" {
		t.Errorf("without an age, while everything is kept forever: %s", got)
	}
	if got := forever.run(t, "operator.retention", `{"age":"1d"}`); !got.Get("retention").IsAbsent() {
		t.Errorf("forever: %s", got)
	}
}

// entry writes an entry of the audit trail, so many minutes after start.
func (h *holdings) entry(t *testing.T, minute int, e audit.Entry) {
	t.Helper()
	e.Time = start.Add(time.Duration(minute) * time.Minute)
	e.Correlation = fmt.Sprintf("%03d", minute)
	must(t, h.disk.AppendAudit(context.Background(), []audit.Row{e.Encode()}))
}

// threeWriters makes a trail of three processes, whose entries are a minute apart and overlap in time. It gives the
// server of the last one.
func threeWriters(t *testing.T) *holdings {
	dir := t.TempDir()
	var h *holdings
	for w := range 3 {
		if h != nil {
			must(t, h.disk.Close())
		}
		h = newHoldings(t, dir, nil)
		for i := w; i < 60; i += 3 {
			e := audit.Entry{Kind: audit.KindEffect, Subject: fmt.Sprintf("user:u%d", w), Operation: "persistence.put", Decision: "allow", Outcome: "ok",
				Target: "/persistence/namespaces/a/documents/x"}
			switch {
			case i%10 == 0:
				e.Kind, e.Decision, e.Outcome = audit.KindRefusal, "deny", "policy_denied"
			case i%10 == 5:
				e.Kind, e.Decision, e.Outcome, e.Operation, e.Target = audit.KindAuth, "none", "UNAUTHORIZED_KEY", "", ""
			case i%10 == 7:
				e.Operation, e.Target = "persistence.delete", "/persistence/namespaces/ab/documents/x"
			}
			h.entry(t, i, e)
		}
	}
	h.clock.Advance(time.Hour)
	return h
}

// read reads the trail with filters, in pages of limit, and gives the correlations of the entries.
func (h *holdings) read(t *testing.T, filters string, limit int) (found []string) {
	t.Helper()
	for cursor := ""; ; {
		in := fmt.Sprintf(`{"limit":%d,"cursor":%q`, limit, cursor)
		if cursor == "" {
			in = fmt.Sprintf(`{"limit":%d`, limit)
		}
		if filters != "" {
			in += "," + filters
		}
		page := h.run(t, "operator.audit.read", in+"}")
		if n := page.Get("entries").Len(); n > limit {
			t.Fatalf("%d entries, limit %d", n, limit)
		}
		for _, e := range page.Get("entries").Items() {
			found = append(found, e.Get("correlation").Str())
		}
		if cursor = page.Get("next").Str(); cursor == "" {
			return found
		}
	}
}

// minutes are the correlations of the minutes below 60 that a test wants, newest first.
func minutes(want func(int) bool) (out []string) {
	for i := 59; i >= 0; i-- {
		if want(i) {
			out = append(out, fmt.Sprintf("%03d", i))
		}
	}
	return out
}

// The entries of all writers come merged by time, in both orders, however they are cut into pages.
func TestAuditOrder(t *testing.T) {
	h := threeWriters(t)
	newest := minutes(func(int) bool { return true })
	oldest := slices.Clone(newest)
	slices.Reverse(oldest)
	for _, limit := range []int{1, 7, 60, 1000} {
		if got := h.read(t, "", limit); !slices.Equal(got, newest) {
			t.Errorf("newest first by %d: %v", limit, got)
		}
		if got := h.read(t, `"order":"oldest"`, limit); !slices.Equal(got, oldest) {
			t.Errorf("oldest first by %d: %v", limit, got)
		}
	}
	e := h.run(t, "operator.audit.read", `{"limit":1}`)
	if e.At("/entries/0/position").String() != "20" || e.At("/entries/0/writer").Str() == "" || !strings.HasSuffix(e.Get("reads").Str(), "/reads") {
		t.Errorf("an entry: %s", e)
	}
}

// Each filter lets through what it names and nothing else; together they narrow.
func TestAuditFilters(t *testing.T) {
	h := threeWriters(t)
	for filters, want := range map[string]func(int) bool{
		`"since":"30m"`:                                   func(i int) bool { return i >= 30 },
		`"since":"2026-11-30T12:40:00Z"`:                  func(i int) bool { return i >= 40 },
		`"until":"50m"`:                                   func(i int) bool { return i < 10 },
		`"since":"30m","until":"20m"`:                     func(i int) bool { return i >= 30 && i < 40 },
		`"denied":true`:                                   func(i int) bool { return i%5 == 0 },
		`"subject":"user:u1"`:                             func(i int) bool { return i%3 == 1 },
		`"operation":"persistence.delete"`:                func(i int) bool { return i%10 == 7 },
		`"operation":"persistence."`:                      func(i int) bool { return i%10 != 5 },
		`"operation":"persistence"`:                       func(int) bool { return false },
		`"outcome":"policy_denied"`:                       func(i int) bool { return i%10 == 0 },
		`"path":"/persistence/namespaces/a"`:              func(i int) bool { return i%10 != 5 && i%10 != 7 },
		`"path":"/persistence/"`:                          func(i int) bool { return i%10 != 5 },
		`"correlation":"042"`:                             func(i int) bool { return i == 42 },
		`"denied":true,"subject":"user:u0","since":"31m"`: func(i int) bool { return i%15 == 0 && i >= 29 },
	} {
		for _, limit := range []int{3, 1000} {
			if got := h.read(t, filters, limit); !slices.Equal(got, minutes(want)) {
				t.Errorf("%s by %d: %v, want %v", filters, limit, got, minutes(want))
			}
		}
	}
	for _, in := range []string{`{"since":"yesterday"}`, `{"until":"2026-13-01T00:00:00Z"}`, `{"cursor":"x"}`, `{"cursor":"e30"}`, `{"limit":0}`, `{"order":"best"}`} {
		h.wantFault(t, "operator.audit.read", in, fault.InvalidRequest, "")
	}
	h.wantFault(t, "operator.audit.read", `{"outcome":"banana"}`, fault.InvalidRequest, `"banana" is none that an entry can have: expected one of ok, error, asked, begun, lost, invalid_request`)
	for _, outcome := range []string{"ok", "begun", "policy_denied", "RATE_LIMITED"} {
		h.run(t, "operator.audit.read", `{"outcome":"`+outcome+`"}`)
	}
	next := h.run(t, "operator.audit.read", `{"limit":1}`).Get("next").Str()
	h.wantFault(t, "operator.audit.read", `{"order":"oldest","cursor":"`+next+`"}`, fault.InvalidRequest, "other order")
}

// What is written between two pages is not in the pages of the newest first, and is at the end of those of the oldest.
func TestAuditGrowsMeanwhile(t *testing.T) {
	h := threeWriters(t)
	newest := h.run(t, "operator.audit.read", `{"limit":59}`).Get("next").Str()
	oldest := h.run(t, "operator.audit.read", `{"limit":59,"order":"oldest"}`).Get("next").Str()
	h.entry(t, 100, audit.Entry{Kind: audit.KindEffect})
	if got := h.run(t, "operator.audit.read", `{"cursor":"`+newest+`"}`); got.Get("entries").Len() != 1 || got.At("/entries/0/correlation").Str() != "000" {
		t.Errorf("newest first: %s", got)
	}
	got := h.run(t, "operator.audit.read", `{"order":"oldest","cursor":"`+oldest+`"}`)
	if got.Get("entries").Len() != 2 || got.At("/entries/0/correlation").Str() != "059" || got.At("/entries/1/correlation").Str() != "100" {
		t.Errorf("oldest first: %s", got)
	}
}

// A chain longer than what is read at once, with a time far out of order: all of it is read, and since gives up early
// without losing what is in reach.
func TestAuditLongChain(t *testing.T) {
	h := newHoldings(t, t.TempDir(), nil)
	var rows []audit.Row
	for i := range 1700 {
		e := audit.Entry{Time: start.Add(time.Duration(i) * time.Minute), Kind: audit.KindEffect, Correlation: fmt.Sprint(i)}
		if i == 1690 {
			e.Time = start // its call began long before it ended
		}
		rows = append(rows, e.Encode())
	}
	must(t, h.disk.AppendAudit(context.Background(), rows))
	if got := h.read(t, "", 1000); len(got) != 1700 || got[0] != "1699" || got[1699] != "0" {
		t.Errorf("%d entries, want 1700", len(got))
	}
	since := start.Add(1600 * time.Minute).Format(time.RFC3339)
	if got := h.read(t, `"since":"`+since+`"`, 1000); len(got) != 99 {
		t.Errorf("%d entries since %s, want 99", len(got), since)
	}
}

// Reading the trail needs a right of its own, and is audited itself.
func TestAuditRights(t *testing.T) {
	h := threeWriters(t)
	for user, allowed := range map[string]bool{"ana": true, "otto": true, "rita": false, "nobody": false} {
		for _, operation := range []string{"operator.audit.read", "operator.audit.verify"} {
			before := len(h.audit.read) + len(h.audit.store)
			reply := h.try(t, user, operation, `{}`)
			if got := reply.Fault == nil; got != allowed {
				t.Errorf("%s as %s: %v, want allowed %v", operation, user, reply.Fault, allowed)
			}
			if n := len(h.audit.read) + len(h.audit.store) - before; n != 1 {
				t.Errorf("%s as %s: %d entries, want 1", operation, user, n)
			}
		}
	}
	if reply := h.try(t, "rita", "operator.namespaces", `{}`); reply.Fault != nil {
		t.Errorf("the control, another area: %v", reply.Fault)
	}
}

// What a verification finds is shown, at most a thousand.
func TestAuditVerify(t *testing.T) {
	report := audit.Report{Writers: 2, Rows: 3, Heads: 1, Unsigned: 1, Damage: make([]audit.Damage, 1001)}
	report.Damage[0] = audit.Damage{Writer: "w", Position: 7, What: "altered"}
	h := newHoldings(t, t.TempDir(), func(c *operator.Config) {
		c.Verify = func(context.Context) (audit.Report, error) { return report, nil }
	})
	got := h.run(t, "operator.audit.verify", `{}`)
	if got.Get("damage").Len() != 1000 || got.Get("omitted").String() != "1" || got.At("/damage/0/what").Str() != "altered" || got.Get("rows").String() != "3" {
		t.Errorf("rows %s, %d damages, omitted %s", got.Get("rows"), got.Get("damage").Len(), got.Get("omitted"))
	}
}

// A check gets its options and its progress through; what is no report does not leave the gate.
func TestCheck(t *testing.T) {
	value := `{"format":2,"at":"2026-11-30T12:00:00Z","findings":[],"omitted":0}`
	var got operator.CheckOptions
	h := newHoldings(t, t.TempDir(), func(c *operator.Config) {
		c.Check = func(_ context.Context, o operator.CheckOptions) (canonjson.Value, error) {
			got = o
			o.Progress("documents", 3, 7)
			return canonjson.ParseStrict([]byte(value), canonjson.Limits{})
		}
	})
	who, err := identity.Local("user:otto", nil)
	must(t, err)
	in, err := canonjson.ParseStrict([]byte(`{"readData":true,"subset":0.05}`), canonjson.Limits{})
	must(t, err)
	var told string
	reply := h.gate.Run(context.Background(), gate.Request{Who: who, Surface: fault.Command, Name: "operator.check", In: in,
		Progress: func(done, total float64, note string) { told = fmt.Sprint(note, done, total) }})
	if reply.Fault != nil || !got.ReadData || got.Subset != 0.05 || !got.Now.Equal(start) || told != "documents3 7" {
		t.Errorf("%v, options %+v, told %q", reply.Fault, got, told)
	}
	for _, in := range []string{`{"subset":0}`, `{"subset":1.5}`, `{"readdata":true}`} {
		h.wantFault(t, "operator.check", in, fault.InvalidRequest, "")
	}
	value = `{"format":2}`
	h.wantFault(t, "operator.check", `{}`, fault.Internal, "internal error")
}

// A backup notes its intent before it begins and its success after; a failed one has only the intent in the store.
func TestBackup(t *testing.T) {
	var fail error
	var h *holdings
	h = newHoldings(t, t.TempDir(), func(c *operator.Config) {
		c.Backup = func(_ context.Context, o operator.BackupOptions) (canonjson.Value, error) {
			if got := h.read(t, `"operation":"operator.backup"`, 100); len(got) == 0 {
				t.Error("the backup begins before its intent is kept")
			}
			return canonjson.Object(canonjson.M("dir", canonjson.String(o.To)), canonjson.M("at", canonjson.String("2026-11-30T12:00:00Z")),
				canonjson.M("format", canonjson.Int(2))), fail
		}
	})
	outcomes := func() (out []string) {
		for _, e := range h.run(t, "operator.audit.read", `{"operation":"operator.backup","order":"oldest"}`).Get("entries").Items() {
			out = append(out, e.Get("outcome").Str()+" "+e.Get("note").Str())
		}
		return out
	}
	if got := h.run(t, "operator.backup", `{"to":"/backups/../b/"}`); got.Get("dir").Str() != "/b" {
		t.Errorf("got %s", got)
	}
	if got := outcomes(); fmt.Sprint(got) != "[begun to /b ok to /b]" {
		t.Errorf("entries %q", got)
	}
	fail = errors.New("the disk is full")
	h.wantFault(t, "operator.backup", `{"to":"/c"}`, fault.Internal, "")
	if got := outcomes(); fmt.Sprint(got) != "[begun to /b ok to /b begun to /c]" {
		t.Errorf("entries after a failure %q", got)
	}
	h.wantFault(t, "operator.backup", `{"to":"b"}`, fault.InvalidRequest, "absolute")
	if reply := h.try(t, "otto", "operator.backup", `{"to":"/b"}`); fault.CodeOf(reply.Fault) != fault.PolicyDenied || len(outcomes()) != 3 {
		t.Errorf("a reader backs up: %v", reply.Fault)
	}
}

// deafTrail is a trail that takes no entries while full is set.
type deafTrail struct {
	audit.Log
	full error
}

// AppendAudit refuses, or keeps the rows.
func (d *deafTrail) AppendAudit(ctx context.Context, rows []audit.Row) error {
	if d.full != nil {
		return d.full
	}
	return d.Log.AppendAudit(ctx, rows)
}

// A store that takes no entries is backed up all the same, and the answer, the log and the file of reads tell that the
// trail does not hold it. An intent that could be noted later is.
func TestBackupOfAFullStore(t *testing.T) {
	full := fmt.Errorf("%w: database or disk is full", persistence.ErrUnavailable)
	trail := &deafTrail{full: full}
	var logged bytes.Buffer
	relief := false // the disk gets room while the backup is made
	h := newHoldings(t, t.TempDir(), func(c *operator.Config) {
		trail.Log = c.Trail
		c.Trail, c.Log = trail, slog.New(slog.NewTextHandler(&logged, nil))
		c.Backup = func(_ context.Context, o operator.BackupOptions) (canonjson.Value, error) {
			if relief {
				trail.full = nil
			}
			return canonjson.Object(canonjson.M("dir", canonjson.String(o.To)), canonjson.M("at", canonjson.String("2026-11-30T12:00:00Z")),
				canonjson.M("format", canonjson.Int(2))), nil
		}
	})
	noted := func() (out []string) {
		for _, e := range h.run(t, "operator.audit.read", `{"operation":"operator.backup","order":"oldest"}`).Get("entries").Items() {
			out = append(out, e.Get("outcome").Str()+" "+e.Get("note").Str())
		}
		return out
	}
	got := h.run(t, "operator.backup", `{"to":"/b"}`)
	if got.Get("dir").Str() != "/b" || !strings.Contains(got.Get("unnoted").Str(), "disk is full") {
		t.Errorf("got %s", got)
	}
	line := h.audit.read[len(h.audit.read)-1]
	if line.Operation != "operator.backup" || line.Outcome != "ok" || strings.Count(logged.String(), "to=/b") != 2 {
		t.Errorf("the file has %+v, the log %s", line, logged.String())
	}
	if got := noted(); len(got) != 0 {
		t.Errorf("the full trail holds %q", got)
	}
	relief = true
	if got := h.run(t, "operator.backup", `{"to":"/c"}`); !got.Get("unnoted").IsAbsent() {
		t.Errorf("with room at the end: %s", got)
	}
	if got := noted(); fmt.Sprint(got) != "[begun to /c ok to /c]" {
		t.Errorf("with room at the end the trail holds %q", got)
	}
	for _, e := range h.audit.read {
		if e.Operation == "operator.backup" && strings.Contains(e.Note, "/c") {
			t.Errorf("what the trail holds is in the file of reads too: %+v", e)
		}
	}
	trail.full = full
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	ana, err := identity.Local("user:ana", nil)
	must(t, err)
	if reply := h.gate.Run(ctx, gate.Request{Who: ana, Surface: fault.Command, Name: "operator.backup",
		In: canonjson.Object(canonjson.M("to", canonjson.String("/d")))}); reply.Fault == nil {
		t.Error("a backup is made for a caller who has gone before it began")
	}
}
