package identity_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tabellion-mcp/tabellion/fault"
	"github.com/tabellion-mcp/tabellion/internal/clock"
	"github.com/tabellion-mcp/tabellion/internal/identity"
)

func TestCreate(t *testing.T) {
	w := newWorld(t, clock.NewManual(start), nil)
	made := w.mustCreate(t, identity.KeySpec{User: "ana", Name: "laptop", Roles: []string{"reader"}, Workspaces: []string{"w"}, Expires: "90d"})
	k := w.keys.keys[0]
	if k.User != "ana" || k.Name != "laptop" || k.Hint != made.Text[4:12] || !k.ExpiresAt.Equal(start.Add(90*24*time.Hour)) || !k.CreatedAt.Equal(start) {
		t.Errorf("stored %+v", k)
	}
	if len(k.ID) != 12 || strings.Trim(k.ID, "0123456789abcdef") != "" {
		t.Errorf("id %q is not 12 hex characters", k.ID)
	}
	if want := k.ID + ": created for ana"; len(w.keys.rows) != 1 || w.keys.rows[0] != want {
		t.Errorf("audit rows %q, want %q", w.keys.rows, want)
	}
	if len(made.Notes) != 0 {
		t.Errorf("notes %q for a key with roles", made.Notes)
	}
	if made := w.mustCreate(t, identity.KeySpec{User: "bob"}); len(made.Notes) != 1 || !strings.Contains(made.Notes[0], "no roles") || !strings.Contains(made.Notes[0], "nothing") {
		t.Errorf("notes %q for a key without roles", made.Notes)
	}
	if w.keys.keys[1].Only != nil {
		t.Error("a key without scopes is narrowed")
	}
}

func TestCreateRefuses(t *testing.T) {
	ok := identity.KeySpec{User: "ana", Name: "n"}
	tests := map[string]func(*identity.KeySpec){
		"no user":            func(k *identity.KeySpec) { k.User = "" },
		"user with a kind":   func(k *identity.KeySpec) { k.User = "role:admin" },
		"user like a flag":   func(k *identity.KeySpec) { k.User = "-x" },
		"long user":          func(k *identity.KeySpec) { k.User = strings.Repeat("a", 129) },
		"user with NUL":      func(k *identity.KeySpec) { k.User = "a\x00" },
		"no name":            func(k *identity.KeySpec) { k.Name = "" },
		"blank name":         func(k *identity.KeySpec) { k.Name = " " },
		"name with newline":  func(k *identity.KeySpec) { k.Name = "a\nb" },
		"name with bidi":     func(k *identity.KeySpec) { k.Name = "a\u202eb" },
		"name not UTF-8":     func(k *identity.KeySpec) { k.Name = "a\xff" },
		"long name":          func(k *identity.KeySpec) { k.Name = strings.Repeat("é", 101) },
		"empty role":         func(k *identity.KeySpec) { k.Roles = []string{""} },
		"role twice":         func(k *identity.KeySpec) { k.Roles = []string{"a", "a"} },
		"role with a colon":  func(k *identity.KeySpec) { k.Roles = []string{"user:bob"} },
		"role with a comma":  func(k *identity.KeySpec) { k.Roles = []string{"a,b"} },
		"many roles":         func(k *identity.KeySpec) { k.Roles = make([]string, 65) },
		"unknown capability": func(k *identity.KeySpec) { k.Only = []string{"persistence.fly@/**"} },
		"scope without @":    func(k *identity.KeySpec) { k.Only = []string{"persistence.read"} },
		"malformed pattern":  func(k *identity.KeySpec) { k.Only = []string{"persistence.read@/a/*/b"} },
		"tenant with slash":  func(k *identity.KeySpec) { k.Tenant = "a/b" },
		"workspace":          func(k *identity.KeySpec) { k.Workspaces = []string{"../x"} },
		"expired":            func(k *identity.KeySpec) { k.Expires = "2020-01-01T00:00:00Z" },
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, clock.NewManual(start), nil)
			spec := ok
			change(&spec)
			if _, err := w.svc.Create(context.Background(), spec, row); fault.CodeOf(err) != fault.InvalidRequest {
				t.Errorf("%v, want invalid_request", err)
			}
			if len(w.keys.keys) != 0 || len(w.keys.rows) != 0 {
				t.Error("something was stored")
			}
			if _, err := w.svc.Create(context.Background(), ok, row); err != nil {
				t.Errorf("the control: %v", err)
			}
		})
	}
}

func TestAtMostTwentyLiveKeys(t *testing.T) {
	w := newWorld(t, clock.NewManual(start), nil)
	for range 20 {
		w.mustCreate(t, identity.KeySpec{User: "ana"})
	}
	spec := identity.KeySpec{User: "ana", Name: "n"}
	if _, err := w.svc.Create(context.Background(), spec, row); fault.CodeOf(err) != fault.QuotaExceeded {
		t.Errorf("the 21st: %v, want quota_exceeded", err)
	}
	w.mustCreate(t, identity.KeySpec{User: "bob"})
	first := w.keys.keys[0].ID
	if _, err := w.svc.Rotate(context.Background(), first, identity.Rotation{}, row); fault.CodeOf(err) != fault.QuotaExceeded {
		t.Errorf("rotation with grace at the limit: %v, want quota_exceeded", err)
	}
	if _, err := w.svc.Rotate(context.Background(), first, identity.Rotation{Grace: "0h"}, row); err != nil {
		t.Errorf("rotation one for one: %v", err)
	}
	if _, _, err := w.svc.Revoke(context.Background(), w.keys.keys[1].ID, "", row); err != nil {
		t.Fatal(err)
	}
	w.mustCreate(t, spec)
}

func TestParseExpiry(t *testing.T) {
	tests := []struct {
		text string
		want time.Duration // from now; 0 is never, -1 is refused
	}{
		{"", 0}, {"never", 0}, {"90d", 90 * 24 * time.Hour}, {"12h", 12 * time.Hour}, {"30m", 30 * time.Minute}, {"1m", time.Minute},
		{"2026-11-30T13:00:00Z", time.Hour}, {"2026-11-30T14:00:00+01:00", time.Hour}, {"2026-11-30T12:00:00.001Z", time.Millisecond},
		{"2026-11-30T12:00:00Z", -1}, {"2026-11-30T12:00:00.0009Z", -1}, {"2026-11-30T11:59:59Z", -1}, {"2127-11-30T12:00:00Z", -1},
		{"0d", -1}, {"0h", -1}, {"-1d", -1}, {"+1d", -1}, {"1", -1}, {"d", -1}, {"1.5d", -1}, {"1d12h", -1}, {"1w", -1}, {"1s", -1}, {"90D", -1}, {"90 d", -1},
		{"36500d", 36500 * 24 * time.Hour}, {"36501d", -1}, {"99999999d", -1}, {"999999999d", -1}, {"99999999999999999999h", -1},
		{"2026-11-30", -1}, {"tomorrow", -1}, {"NEVER", -1},
	}
	for _, tt := range tests {
		at, err := identity.ParseExpiry(tt.text, start)
		switch {
		case tt.want < 0:
			if fault.CodeOf(err) != fault.InvalidRequest {
				t.Errorf("%q: %v, %v; want invalid_request", tt.text, at, err)
			}
		case tt.want == 0:
			if err != nil || !at.IsZero() {
				t.Errorf("%q: %v, %v; want never", tt.text, at, err)
			}
		default:
			if err != nil || !at.Equal(start.Add(tt.want)) {
				t.Errorf("%q: %v, %v; want %v from now", tt.text, at, err, tt.want)
			}
		}
	}
}

func TestRevoke(t *testing.T) {
	c := clock.NewManual(start)
	w := newWorld(t, c, nil)
	id := w.mustCreate(t, identity.KeySpec{User: "ana"}).Key.ID
	k, changed, err := w.svc.Revoke(context.Background(), id, "laptop lost", row)
	if err != nil || !changed || !k.RevokedAt.Equal(start) || k.Reason != "laptop lost" || w.keys.rows[1] != id+": revoked: laptop lost" {
		t.Fatalf("%+v, %v, rows %q", k, err, w.keys.rows)
	}
	c.Advance(time.Hour)
	k, changed, err = w.svc.Revoke(context.Background(), id, "again", row)
	if err != nil || changed || !k.RevokedAt.Equal(start) || k.Reason != "laptop lost" || len(w.keys.rows) != 2 {
		t.Errorf("the second time: %+v, %v, %d rows; want no change", k, err, len(w.keys.rows))
	}
	if _, _, err := w.svc.Revoke(context.Background(), "000000000000", "", row); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("unknown id: %v, want not_found", err)
	}
	if _, _, err := w.svc.Revoke(context.Background(), id, "a\nb", row); fault.CodeOf(err) != fault.InvalidRequest {
		t.Errorf("reason of two lines: %v, want invalid_request", err)
	}
	if _, err := w.svc.Show(context.Background(), "nope"); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("show: %v, want not_found", err)
	}
}

func TestRotate(t *testing.T) {
	c := clock.NewManual(start)
	w := newWorld(t, c, nil)
	old := w.mustCreate(t, identity.KeySpec{User: "ana", Name: "laptop", Roles: []string{"reader"}, Tenant: "t", Only: []string{"persistence.read@/**"}, Workspaces: []string{"w"}, Expires: "90d"})
	w.ask(t, old.Text)
	c.Advance(30 * 24 * time.Hour)
	next, err := w.svc.Rotate(context.Background(), old.Key.ID, identity.Rotation{}, row)
	if err != nil {
		t.Fatal(err)
	}
	k := next.Key
	if k.User != "ana" || k.Name != "laptop" || !slices.Equal(k.Roles, []string{"reader"}) || k.Tenant != "t" || len(k.Only) != 1 || len(k.Workspaces) != 1 || k.ID == old.Key.ID {
		t.Errorf("the new key is %+v", k)
	}
	if !k.ExpiresAt.Equal(c.Now().Add(90 * 24 * time.Hour)) {
		t.Errorf("the new key ends at %v, want 90 days from now", k.ExpiresAt)
	}
	if got := w.keys.rows[1]; got != old.Key.ID+": rotated to "+k.ID {
		t.Errorf("audit row %q", got)
	}
	if p, _ := w.ask(t, next.Text); p == nil || p.KeyID != k.ID {
		t.Error("the new key is refused")
	}
	c.Advance(24*time.Hour - 1)
	if p, _ := w.ask(t, old.Text); p == nil {
		t.Error("the old key is refused within the grace")
	}
	c.Advance(1)
	if p, _ := w.ask(t, old.Text); p != nil {
		t.Error("the old key is good after the grace")
	}
	for name, id := range map[string]string{"rotated": old.Key.ID, "unknown": "000000000000"} {
		if _, err := w.svc.Rotate(context.Background(), id, identity.Rotation{}, row); fault.As(err) == nil {
			t.Errorf("%s: %v, want a fault", name, err)
		}
	}
	if n := len(w.keys.keys); n != 2 {
		t.Errorf("%d keys, want 2", n)
	}
}

func TestGraceNeverProlongs(t *testing.T) {
	w := newWorld(t, clock.NewManual(start), nil)
	old := w.mustCreate(t, identity.KeySpec{User: "ana", Expires: "1h"})
	if _, err := w.svc.Rotate(context.Background(), old.Key.ID, identity.Rotation{Grace: "30d", Expires: "12h"}, row); err != nil {
		t.Fatal(err)
	}
	if got := w.keys.keys[0].ExpiresAt; !got.Equal(start.Add(time.Hour)) {
		t.Errorf("the old key ends at %v, want an hour from now", got)
	}
	if got := w.keys.keys[1].ExpiresAt; !got.Equal(start.Add(12 * time.Hour)) {
		t.Errorf("the new key ends at %v, want 12 hours from now", got)
	}
}

func TestRotateWithoutGrace(t *testing.T) {
	w := newWorld(t, clock.NewManual(start), nil)
	old := w.mustCreate(t, identity.KeySpec{User: "ana"})
	w.ask(t, old.Text)
	if _, err := w.svc.Rotate(context.Background(), old.Key.ID, identity.Rotation{Grace: "0h"}, row); err != nil {
		t.Fatal(err)
	}
	if p, _ := w.ask(t, old.Text); p != nil {
		t.Error("the old key is good")
	}
	if !w.keys.keys[1].ExpiresAt.IsZero() {
		t.Error("the new key of one that never ended ends")
	}
	for _, grace := range []string{"soon", "-1h", "1"} {
		if _, err := w.svc.Rotate(context.Background(), w.keys.keys[1].ID, identity.Rotation{Grace: grace}, row); fault.CodeOf(err) != fault.InvalidRequest {
			t.Errorf("grace %q: %v, want invalid_request", grace, err)
		}
	}
}

func TestRotateDeadKey(t *testing.T) {
	c := clock.NewManual(start)
	w := newWorld(t, c, nil)
	revoked := w.mustCreate(t, identity.KeySpec{User: "ana"}).Key.ID
	expired := w.mustCreate(t, identity.KeySpec{User: "ana", Expires: "1m"}).Key.ID
	if _, _, err := w.svc.Revoke(context.Background(), revoked, "", row); err != nil {
		t.Fatal(err)
	}
	c.Advance(time.Hour)
	for _, id := range []string{revoked, expired} {
		if _, err := w.svc.Rotate(context.Background(), id, identity.Rotation{}, row); fault.CodeOf(err) != fault.InvalidRequest {
			t.Errorf("%s: %v, want invalid_request", id, err)
		}
	}
	if len(w.keys.keys) != 2 {
		t.Error("a dead key was replaced")
	}
}

func TestPrune(t *testing.T) {
	c := clock.NewManual(start)
	w := newWorld(t, c, nil)
	live := w.mustCreate(t, identity.KeySpec{User: "ana"}).Key.ID
	w.mustCreate(t, identity.KeySpec{User: "ana", Expires: "1h"})
	c.Advance(29 * 24 * time.Hour)
	ids, err := w.svc.Prune(context.Background(), "", row)
	if err != nil || len(ids) != 0 || len(w.keys.rows) != 2 {
		t.Errorf("%v, %v; want nothing pruned after 29 days", ids, err)
	}
	c.Advance(2 * 24 * time.Hour)
	ids, err = w.svc.Prune(context.Background(), "", row)
	if err != nil || len(ids) != 1 || len(w.keys.keys) != 1 || w.keys.keys[0].ID != live {
		t.Errorf("%v, %v; want the expired key pruned", ids, err)
	}
	if got := w.keys.rows[2]; !strings.Contains(got, "pruned 1 keys: "+ids[0]) {
		t.Errorf("audit row %q", got)
	}
	if _, err := w.svc.Prune(context.Background(), "old", row); fault.CodeOf(err) != fault.InvalidRequest {
		t.Errorf("%v, want invalid_request", err)
	}
}

// The store's own errors come through, and nothing is said to have been done.
func TestStoreErrors(t *testing.T) {
	down := errors.New("the store is away")
	w := newWorld(t, clock.NewManual(start), nil)
	id := w.mustCreate(t, identity.KeySpec{User: "ana"}).Key.ID
	w.keys.down = down
	ctx := context.Background()
	_, created := w.svc.Create(ctx, identity.KeySpec{User: "bob", Name: "n"}, row)
	_, _, revoked := w.svc.Revoke(ctx, id, "", row)
	_, rotated := w.svc.Rotate(ctx, id, identity.Rotation{}, row)
	_, listed := w.svc.List(ctx)
	_, shown := w.svc.Show(ctx, id)
	_, pruned := w.svc.Prune(ctx, "", row)
	for name, err := range map[string]error{"create": created, "revoke": revoked, "rotate": rotated, "list": listed, "show": shown, "prune": pruned} {
		if !errors.Is(err, down) || fault.As(err) != nil {
			t.Errorf("%s: %v, want the store's error", name, err)
		}
	}
	w.keys.down = nil
}
