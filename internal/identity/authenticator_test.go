package identity_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tabellion-mcp/tabellion/internal/audit"
	"github.com/tabellion-mcp/tabellion/internal/clock"
	"github.com/tabellion-mcp/tabellion/internal/gate"
	"github.com/tabellion-mcp/tabellion/internal/identity"
	"github.com/tabellion-mcp/tabellion/policy"
)

var _ gate.Authenticator = (*identity.Authenticator)(nil)

// start is where every manual clock stands at first.
var start = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// world is an authenticator and a key service over the same keys.
type world struct {
	keys  *fakeKeys
	clock clock.Clock
	auth  *identity.Authenticator
	svc   *identity.KeyService
	log   *bytes.Buffer
}

// newWorld makes a world. Change c to set it up otherwise.
func newWorld(t testing.TB, c clock.Clock, change func(*identity.Config)) *world {
	t.Helper()
	w := &world{keys: &fakeKeys{}, clock: c, log: &bytes.Buffer{}}
	cfg := identity.Config{Keys: w.keys, Clock: c, Log: slog.New(slog.NewTextHandler(w.log, nil))}
	if change != nil {
		change(&cfg)
	}
	var err error
	if w.auth, err = identity.NewAuthenticator(cfg); err != nil {
		t.Fatal(err)
	}
	if w.svc, err = identity.NewKeyService(identity.ServiceConfig{Keys: w.keys, Auth: w.auth, Clock: c, Random: rand.Reader, Pepper: cfg.Pepper, Prefix: cfg.Prefix}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.auth.Close(context.Background()) })
	return w
}

// row is an audit row that shows its parts.
func row(target, note string) audit.Row { return audit.Row(target + ": " + note) }

// mustCreate makes a key.
func (w *world) mustCreate(t testing.TB, spec identity.KeySpec) identity.NewKey {
	t.Helper()
	if spec.Name == "" {
		spec.Name = "test"
	}
	made, err := w.svc.Create(context.Background(), spec, row)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// ask authenticates with a key.
func (w *world) ask(t testing.TB, key string) (*identity.Principal, string) {
	t.Helper()
	p, reason, err := w.auth.Authenticate(context.Background(), identity.Credentials{Key: key})
	if err != nil {
		t.Fatal(err)
	}
	if (p == nil) != (reason != "") {
		t.Fatalf("principal %v with reason %q", p, reason)
	}
	return p, reason
}

func TestPrincipalOfAKey(t *testing.T) {
	w := newWorld(t, clock.NewManual(start), nil)
	made := w.mustCreate(t, identity.KeySpec{User: "ana", Roles: []string{"reader", "writer"}, Tenant: "t1", Only: []string{"persistence.read@/persistence/namespaces/a/**"}})
	p, _ := w.ask(t, made.Text)
	if p == nil {
		t.Fatal("a good key was refused")
	}
	want := []string{"user:ana", "key:" + made.Key.ID, "role:reader", "role:writer"}
	if !slices.Equal(p.Subjects, want) || p.Subject != "user:ana" || p.UserID() != "ana" {
		t.Errorf("subject %s, subjects %v; want %v", p.Subject, p.Subjects, want)
	}
	if p.Method != identity.MethodKey || p.KeyID != made.Key.ID || p.Tenant != "t1" || !slices.Equal(p.Roles, []string{"reader", "writer"}) {
		t.Errorf("principal %+v", p)
	}
	if len(p.Only) != 1 || !p.Only[0].Covers(policy.Check{Capability: policy.PersistenceRead, Path: "/persistence/namespaces/a/documents/x"}) {
		t.Errorf("scopes %v", p.Only)
	}
	plain := w.mustCreate(t, identity.KeySpec{User: "bob"})
	if p, _ := w.ask(t, plain.Text); p.Only != nil || p.Roles != nil {
		t.Errorf("a key without scopes and roles: %+v", p)
	}
}

func TestRefusals(t *testing.T) {
	c := clock.NewManual(start)
	w := newWorld(t, c, nil)
	good := w.mustCreate(t, identity.KeySpec{User: "ana", Expires: "1h"})
	revoked := w.mustCreate(t, identity.KeySpec{User: "ana"})
	if _, _, err := w.svc.Revoke(context.Background(), revoked.Key.ID, "lost", row); err != nil {
		t.Fatal(err)
	}
	stranger, err := identity.NewKeyText("tbl", rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	// A stranger with the hint of a stored key: the checksum fits, the digest does not.
	sameHint := identity.KeyWithHint("tbl", good.Text[4:12])
	tests := []struct {
		name   string
		c      identity.Credentials
		reason string
	}{
		{"none", identity.Credentials{}, "no credentials"},
		{"several", identity.Credentials{Key: good.Text, Malformed: true}, "malformed"},
		{"any text", identity.Credentials{Key: "x"}, "form"},
		{"a typing error", identity.Credentials{Key: good.Text[:39] + "!"}, "form"},
		{"another prefix", identity.Credentials{Key: "ctx" + good.Text[3:]}, "form"},
		{"a blank behind", identity.Credentials{Key: good.Text + " "}, "form"},
		{"unknown", identity.Credentials{Key: stranger}, "unknown key with hint " + stranger[4:12]},
		{"unknown with a known hint", identity.Credentials{Key: sameHint}, "unknown key"},
		{"revoked", identity.Credentials{Key: revoked.Text}, "revoked key " + revoked.Key.ID},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p, reason, err := w.auth.Authenticate(context.Background(), tt.c)
			if p != nil || err != nil || !strings.Contains(reason, tt.reason) {
				t.Errorf("%v, %q, %v; want a refusal because of %q", p, reason, err, tt.reason)
			}
			if tt.c.Key != "" && strings.Contains(reason, tt.c.Key) {
				t.Error("the reason holds the key")
			}
		})
	}
	if p, _ := w.ask(t, good.Text); p == nil {
		t.Error("the control, a good key, is refused")
	}
	c.Advance(time.Hour - 1)
	if p, _ := w.ask(t, good.Text); p == nil {
		t.Error("refused just before its expiry")
	}
	c.Advance(1)
	if p, reason := w.ask(t, good.Text); p != nil || reason != "expired key "+good.Key.ID {
		t.Errorf("at its expiry: %v, %q", p, reason)
	}
	if strings.Contains(w.log.String(), good.Text) {
		t.Error("a key is in the log")
	}
}

func TestClockSetBackRevivesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clock.NewManual(time.Now())
		w := newWorld(t, c, nil)
		made := w.mustCreate(t, identity.KeySpec{User: "ana", Expires: "1h"})
		time.Sleep(2 * time.Hour) // of true time; the clock was set back by as much
		if p, reason := w.ask(t, made.Text); p != nil {
			t.Error("an expired key is good again after the clock was set back")
		} else if !strings.Contains(reason, "expired") {
			t.Error(reason)
		}
	})
}

func TestPepper(t *testing.T) {
	c := clock.NewManual(start)
	w := newWorld(t, c, func(cfg *identity.Config) { cfg.Pepper = []byte("pepper") })
	made := w.mustCreate(t, identity.KeySpec{User: "ana"})
	if p, _ := w.ask(t, made.Text); p == nil {
		t.Error("a good key is refused")
	}
	other, err := identity.NewAuthenticator(identity.Config{Keys: w.keys, Clock: c, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close(context.Background())
	if p, _, _ := other.Authenticate(context.Background(), identity.Credentials{Key: made.Text}); p != nil {
		t.Error("a key is good without the pepper")
	}
}

func TestBackendDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, clock.System{}, nil)
		made := w.mustCreate(t, identity.KeySpec{User: "ana"})
		w.ask(t, made.Text)
		w.keys.down = errors.New("the store is away")
		if p, _ := w.ask(t, made.Text); p == nil {
			t.Error("refused within the 5 s of the cache")
		}
		time.Sleep(5 * time.Second)
		p, reason, err := w.auth.Authenticate(context.Background(), identity.Credentials{Key: made.Text})
		if p != nil || reason != "" || !errors.Is(err, w.keys.down) {
			t.Errorf("%v, %q, %v; want the store's error", p, reason, err)
		}
		w.keys.down = nil
	})
}

func TestCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, clock.System{}, nil)
		made := w.mustCreate(t, identity.KeySpec{User: "ana"})
		for range 100 {
			w.ask(t, made.Text)
		}
		if w.keys.lookups != 1 {
			t.Errorf("%d look-ups for 100 uses, want 1", w.keys.lookups)
		}
		// Revoked by another process: within 5 s.
		w.keys.mu.Lock()
		w.keys.keys[0].RevokedAt = time.Now()
		w.keys.mu.Unlock()
		time.Sleep(5*time.Second - 1)
		if p, _ := w.ask(t, made.Text); p == nil {
			t.Error("not cached for 5 s: this test shows nothing")
		}
		time.Sleep(time.Nanosecond)
		if p, _ := w.ask(t, made.Text); p != nil {
			t.Error("good 5 s after its revocation")
		}
		// Uses do not prolong the cache: the look-up counts.
		before := w.keys.lookups
		for range 10 {
			if p, _ := w.ask(t, made.Text); p != nil {
				t.Error("good again")
			}
		}
		if got := w.keys.lookups - before; got != 10 {
			t.Errorf("%d look-ups for 10 refusals, want 10: refusals are not cached", got)
		}
	})
}

func TestUsesDoNotProlongTheCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, clock.System{}, nil)
		made := w.mustCreate(t, identity.KeySpec{User: "ana"})
		w.ask(t, made.Text)
		w.keys.mu.Lock()
		w.keys.keys[0].RevokedAt = time.Now()
		w.keys.mu.Unlock()
		for range 6 {
			time.Sleep(time.Second)
			w.ask(t, made.Text)
		}
		if p, _ := w.ask(t, made.Text); p != nil {
			t.Error("good 6 s after its revocation because it was used all the time")
		}
	})
}

func TestRevocationHereWorksAtOnce(t *testing.T) {
	w := newWorld(t, clock.System{}, nil)
	made := w.mustCreate(t, identity.KeySpec{User: "ana"})
	w.ask(t, made.Text)
	if _, _, err := w.svc.Revoke(context.Background(), made.Key.ID, "", row); err != nil {
		t.Fatal(err)
	}
	if p, _ := w.ask(t, made.Text); p != nil {
		t.Error("good after its revocation in this process")
	}
}

// A look-up that read the key before the revocation and ends after it must not put it into the cache.
func TestRevocationDuringALookUp(t *testing.T) {
	w := newWorld(t, clock.System{}, nil)
	made := w.mustCreate(t, identity.KeySpec{User: "ana"})
	var once sync.Once
	w.keys.during = func() {
		once.Do(func() {
			if _, _, err := w.svc.Revoke(context.Background(), made.Key.ID, "", row); err != nil {
				t.Error(err)
			}
		})
	}
	w.ask(t, made.Text) // this call overlaps the revocation and may go either way
	if p, _ := w.ask(t, made.Text); p != nil {
		t.Error("the overtaken look-up was cached")
	}
}

func TestUses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, clock.System{}, nil)
		touches := func() [][]identity.KeyUse {
			synctest.Wait()
			w.keys.mu.Lock()
			defer w.keys.mu.Unlock()
			return slices.Clone(w.keys.touches)
		}
		made := w.mustCreate(t, identity.KeySpec{User: "ana"})
		w.ask(t, made.Text)
		time.Sleep(1100 * time.Millisecond)
		if len(touches()) != 1 || touches()[0][0].Count != 1 {
			t.Fatalf("uses %v, want the first one soon", touches())
		}
		for range 30 {
			w.ask(t, made.Text)
			time.Sleep(time.Second)
		}
		if len(touches()) != 1 {
			t.Errorf("written %d times within the first minute", len(touches()))
		}
		time.Sleep(time.Minute)
		if len(touches()) != 2 || touches()[1][0].Count != 30 {
			t.Fatalf("uses %v, want 30 more at once", touches())
		}
		w.ask(t, made.Text)
		w.keys.mu.Lock()
		w.keys.down = errors.New("away")
		w.keys.mu.Unlock()
		time.Sleep(2 * time.Minute)
		touches()
		w.keys.mu.Lock()
		w.keys.down = nil
		w.keys.mu.Unlock()
		if err := w.auth.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
		if err := w.auth.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
		last := touches()[len(touches())-1]
		if len(touches()) != 3 || last[0].Count != 1 || last[0].ID != made.Key.ID {
			t.Errorf("uses after Close %v, want one more of %s", touches(), made.Key.ID)
		}
	})
}

func TestDev(t *testing.T) {
	w := newWorld(t, clock.System{}, func(c *identity.Config) { c.Dev = true })
	secret := w.mustCreate(t, identity.KeySpec{User: "ana"}).Text
	subjects := map[string]bool{}
	for _, c := range []identity.Credentials{{}, {Key: "alice"}, {Key: "bob"}, {Key: secret}, {Malformed: true, Key: "carol"}} {
		p, reason, err := w.auth.Authenticate(context.Background(), c)
		if err != nil || reason != "" || p == nil {
			t.Fatalf("%+v: %v, %q, %v", c, p, reason, err)
		}
		if p.Method != identity.MethodDev || !strings.HasPrefix(p.Subject, "local:dev") || !slices.Contains(p.Subjects, "role:admin") {
			t.Errorf("principal %+v", p)
		}
		if c.Key != "" && strings.Contains(p.Subject, c.Key) || strings.Contains(p.Subject, "ana") {
			t.Errorf("subject %s is taken from the credentials", p.Subject)
		}
		subjects[p.Subject] = true
	}
	if len(subjects) != 5 || !subjects["local:dev"] {
		t.Errorf("subjects %v, want five", subjects)
	}
	if w.keys.lookups != 0 {
		t.Error("a key was looked up")
	}
}

func TestUnreadableScopeCoversNothing(t *testing.T) {
	w := newWorld(t, clock.System{}, nil)
	made := w.mustCreate(t, identity.KeySpec{User: "ana"})
	w.keys.keys[0].Only = []string{"persistence.fly@/persistence/**"}
	p, _ := w.ask(t, made.Text)
	if p == nil || p.Only == nil || len(p.Only) != 0 {
		t.Errorf("principal %+v, want one that is narrowed to nothing", p)
	}
	if !strings.Contains(w.log.String(), made.Key.ID) {
		t.Error("nothing in the log")
	}
}

func TestBadPrefix(t *testing.T) {
	if _, err := identity.NewAuthenticator(identity.Config{Prefix: "X"}); err == nil {
		t.Error("an authenticator with the prefix X")
	}
	if _, err := identity.NewKeyService(identity.ServiceConfig{Prefix: "X"}); err == nil {
		t.Error("a key service with the prefix X")
	}
}

func TestLocal(t *testing.T) {
	for subject, want := range map[string]string{"me": "local:me", "local:me": "local:me", "user:ana@example.org": "user:ana@example.org", "service:build": "service:build"} {
		p, err := identity.Local(subject, []string{"admin"})
		if err != nil || p.Subject != want || !slices.Equal(p.Subjects, []string{want, "role:admin"}) || p.Method != identity.MethodStdio || p.Only != nil {
			t.Errorf("%s: %+v, %v", subject, p, err)
		}
	}
	for _, subject := range []string{"", ":", "local:", "role:admin", "key:ab", "group:x", "user:a:b", "user:-x", "a b", "me\n", "user:role:admin"} {
		if p, err := identity.Local(subject, nil); err == nil {
			t.Errorf("%q is the principal %+v", subject, p)
		}
	}
	for _, roles := range [][]string{{""}, {"a", "a"}, {"a:b"}, {"role:admin"}, {"a b"}} {
		if _, err := identity.Local("me", roles); err == nil {
			t.Errorf("roles %q are taken", roles)
		}
	}
}

func TestOSUser(t *testing.T) {
	name := identity.OSUser()
	if _, err := identity.Local(name, nil); err != nil {
		t.Errorf("the name %q is no subject: %v", name, err)
	}
}

func BenchmarkAuthenticateCached(b *testing.B) {
	w := newWorld(b, clock.System{}, nil)
	made := w.mustCreate(b, identity.KeySpec{User: "ana", Roles: []string{"reader"}})
	b.ReportAllocs()
	for b.Loop() {
		w.ask(b, made.Text)
	}
}
