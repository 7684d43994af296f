package seal_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"io"
	mathrand "math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/tabellion-mcp/tabellion/internal/clock"
	"github.com/tabellion-mcp/tabellion/internal/seal"
)

// ring is a Keyring in memory that counts how often it is read. Times are kept in milliseconds, as a database does.
type ring struct {
	mu    sync.Mutex
	keys  []seal.Key
	reads int
	down  error
}

// SealKeys gives the keys, newest first.
func (r *ring) SealKeys(context.Context) ([]seal.Key, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reads++
	return slices.Clone(r.keys), r.down
}

// AddSealKey adds k in front.
func (r *ring) AddSealKey(_ context.Context, k seal.Key, forget time.Time) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.down != nil {
		return r.down
	}
	for _, old := range r.keys {
		if old.ID == k.ID {
			return errors.New("the id exists")
		}
	}
	k.Created = k.Created.Truncate(time.Millisecond)
	r.keys = slices.DeleteFunc(slices.Insert(r.keys, 0, k), func(old seal.Key) bool { return old.Created.Before(forget) })
	return nil
}

// start is where the clock of every test stands.
var start = time.Date(2026, 11, 30, 12, 0, 0, 123_456_789, time.UTC)

// newSealer makes a sealer over r.
func newSealer(t testing.TB, r *ring, c clock.Clock) *seal.Sealer {
	t.Helper()
	s, err := seal.New(context.Background(), r, c, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// mustSeal seals a cursor of a quarter of an hour.
func mustSeal(t testing.TB, s *seal.Sealer, plain string) string {
	t.Helper()
	text, err := s.Seal(seal.PurposeCursor, 15*time.Minute, []byte("bind"), []byte(plain))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// wantOpen fails unless text opens as plain.
func wantOpen(t testing.TB, s *seal.Sealer, text, plain string) {
	t.Helper()
	got, err := s.Open(seal.PurposeCursor, []byte("bind"), text)
	if err != nil || string(got) != plain {
		t.Fatalf("Open: %q, %v; want %q", got, err, plain)
	}
}

// wantInvalid fails unless text is refused with ErrInvalid itself.
func wantInvalid(t testing.TB, s *seal.Sealer, text string) {
	t.Helper()
	if got, err := s.Open(seal.PurposeCursor, []byte("bind"), text); err != seal.ErrInvalid || got != nil {
		t.Fatalf("Open(%q): %q, %v; want ErrInvalid", text, got, err)
	}
}

func TestRoundTrip(t *testing.T) {
	s := newSealer(t, &ring{}, clock.NewManual(start))
	for _, plain := range []string{"", "x", strings.Repeat("\x00", 1000)} {
		text := mustSeal(t, s, plain)
		wantOpen(t, s, text, plain)
		if strings.Trim(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
			t.Errorf("text %q has characters outside the cursor alphabet", text)
		}
	}
	if first, second := mustSeal(t, s, "same"), mustSeal(t, s, "same"); first == second {
		t.Error("two values of the same content are the same text")
	}
}

func TestEveryAlteredBitIsRefused(t *testing.T) {
	s := newSealer(t, &ring{}, clock.NewManual(start))
	text := mustSeal(t, s, "last key seen: a")
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	for i := range raw {
		for bit := range 8 {
			raw[i] ^= 1 << bit
			wantInvalid(t, s, base64.RawURLEncoding.EncodeToString(raw))
			raw[i] ^= 1 << bit
		}
	}
	wantOpen(t, s, base64.RawURLEncoding.EncodeToString(raw), "last key seen: a") // the control: nothing altered
}

func TestEveryAlteredCharacterIsRefused(t *testing.T) {
	s := newSealer(t, &ring{}, clock.NewManual(start))
	for _, plain := range []string{"", "1", "22"} { // each length of the last group
		text := mustSeal(t, s, plain)
		for i := range len(text) {
			for _, c := range []byte("AQgwBx-_=+/ \n\r\x00.") {
				if text[i] == c {
					continue
				}
				wantInvalid(t, s, text[:i]+string(c)+text[i+1:])
			}
			for _, c := range []string{"\n", "\r", "\r\n", "A", "=", " "} {
				wantInvalid(t, s, text[:i]+c+text[i:])
			}
			wantInvalid(t, s, text[:i])
			wantInvalid(t, s, text[:i]+text[i+1:])
		}
		for _, c := range []string{"\n", "=", "==", "A", "AAAA"} {
			wantInvalid(t, s, text+c)
		}
		wantOpen(t, s, text, plain)
	}
}

func TestPurposeAndBind(t *testing.T) {
	s := newSealer(t, &ring{}, clock.NewManual(start))
	text := mustSeal(t, s, "x")
	if _, err := s.Open(seal.PurposeState, []byte("bind"), text); err != seal.ErrInvalid {
		t.Errorf("another purpose: %v, want ErrInvalid", err)
	}
	for _, bind := range []string{"", "bin", "bind\x00", "Bind", "\x00bind"} {
		if _, err := s.Open(seal.PurposeCursor, []byte(bind), text); err != seal.ErrInvalid {
			t.Errorf("bind %q: %v, want ErrInvalid", bind, err)
		}
	}
	wantOpen(t, s, text, "x")
}

func TestLife(t *testing.T) {
	tests := []struct {
		name string
		move time.Duration
		ok   bool
	}{
		{"at once", 0, true},
		{"just before the end", 900*time.Second - 1, true},
		{"at 900 seconds", 900 * time.Second, false},
		{"a day later", 24 * time.Hour, false},
		{"the clock a little back", -5 * time.Second, true},
		{"the clock further back", -5*time.Second - 1, false},
		{"the clock a day back", -24 * time.Hour, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := clock.NewManual(start)
			s := newSealer(t, &ring{}, c)
			text := mustSeal(t, s, "x")
			c.Advance(tt.move)
			if _, err := s.Open(seal.PurposeCursor, []byte("bind"), text); (err == nil) != tt.ok {
				t.Errorf("after %s: %v, want valid %v", tt.move, err, tt.ok)
			}
		})
	}
}

func TestUseDoesNotExtendLife(t *testing.T) {
	c := clock.NewManual(start)
	s := newSealer(t, &ring{}, c)
	text := mustSeal(t, s, "x")
	for range 14 {
		c.Advance(time.Minute)
		wantOpen(t, s, text, "x")
	}
	c.Advance(time.Minute)
	wantInvalid(t, s, text)
}

func TestSealBounds(t *testing.T) {
	s := newSealer(t, &ring{}, clock.NewManual(start))
	for _, life := range []time.Duration{0, -1, seal.MaxLife + 1} {
		if _, err := s.Seal(seal.PurposeCursor, life, nil, nil); err == nil {
			t.Errorf("life %s: no error", life)
		}
	}
	longest := 0
	for n := 1400; n < 1600; n++ {
		text, err := s.Seal(seal.PurposeCursor, time.Minute, nil, make([]byte, n))
		if err != nil {
			if !errors.Is(err, seal.ErrTooLong) {
				t.Fatal(err)
			}
			break
		}
		longest = len(text)
	}
	if longest < 2040 || longest > 2048 {
		t.Errorf("the longest cursor has %d characters, want 2048 or a little less", longest)
	}
	if _, err := s.Seal("unknown", time.Minute, nil, nil); err == nil {
		t.Error("an unknown purpose was sealed")
	}
	if _, err := s.Open("unknown", nil, mustSeal(t, s, "x")); err != seal.ErrInvalid {
		t.Errorf("an unknown purpose: %v, want ErrInvalid", err)
	}
}

func TestRestart(t *testing.T) {
	r, c := &ring{}, clock.NewManual(start)
	text := mustSeal(t, newSealer(t, r, c), "x")
	wantOpen(t, newSealer(t, r, c), text, "x")
	wantInvalid(t, newSealer(t, &ring{}, c), text) // the control: another store
	if len(r.keys) != 1 {
		t.Errorf("%d keys after a restart, want 1", len(r.keys))
	}
}

func TestRotate(t *testing.T) {
	r, c := &ring{}, clock.NewManual(start)
	s := newSealer(t, r, c)
	c.Advance(48 * time.Hour)
	old := mustSeal(t, s, "old")
	rotate(t, s)
	late := mustSeal(t, s, "new")
	if first, second := keyID(t, old), keyID(t, late); first == second {
		t.Fatalf("both values are under key %d", first)
	}
	c.Advance(15*time.Minute - 1)
	wantOpen(t, s, old, "old")
	wantOpen(t, newSealer(t, r, c), old, "old")
	wantOpen(t, s, late, "new")
	c.Advance(1)
	wantInvalid(t, s, old)
	if len(r.keys) != 2 {
		t.Fatalf("%d keys after one rotation, want 2", len(r.keys))
	}
}

// rotate rotates once.
func rotate(t testing.TB, s *seal.Sealer) {
	t.Helper()
	if err := s.Rotate(context.Background()); err != nil {
		t.Fatal(err)
	}
}

// keyID reads the id of the key that a value is sealed under.
func keyID(t testing.TB, text string) [4]byte {
	t.Helper()
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return [4]byte(raw[1:5])
}

// A replaced key opens nothing once all that it sealed has expired, even if a clock that was set back makes a value
// look fresh; and the next rotation takes it off the ring.
func TestReplacedKeysAreForgotten(t *testing.T) {
	r, c := &ring{}, clock.NewManual(start)
	s := newSealer(t, r, c)
	stale := newSealer(t, &ring{keys: slices.Clone(r.keys)}, c) // never hears of the rotation
	rotate(t, s)
	c.Advance(20 * time.Minute)
	wantInvalid(t, s, mustSeal(t, stale, "x")) // fresh, but under a key that was replaced 20 minutes ago
	rotate(t, s)
	if len(r.keys) != 2 || r.keys[0].ID != 3 || r.keys[1].ID != 2 {
		t.Errorf("keys on the ring: %v, want 3 and 2", ids(r.keys))
	}
	rotate(t, s) // at once: the key of a moment ago must stay, and what it replaced too
	if got := ids(r.keys); !slices.Equal(got, []uint32{4, 3, 2}) {
		t.Errorf("keys on the ring: %v, want 4, 3, 2", got)
	}
}

// ids lists the ids of keys.
func ids(keys []seal.Key) (out []uint32) {
	for _, k := range keys {
		out = append(out, k.ID)
	}
	return out
}

func TestRotationWithTheClockSetBack(t *testing.T) {
	r, c := &ring{}, clock.NewManual(start)
	s := newSealer(t, r, c)
	c.Advance(-time.Hour)
	for range 3 {
		rotate(t, s)
	}
	wantOpen(t, s, mustSeal(t, s, "x"), "x")
	for i := range r.keys[1:] {
		if !r.keys[i].Created.After(r.keys[i+1].Created) {
			t.Errorf("key %d was not made after key %d", r.keys[i].ID, r.keys[i+1].ID)
		}
	}
}

func TestRotationByAnotherProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &ring{}
		a, b := newSealer(t, r, clock.System{}), newSealer(t, r, clock.System{})
		rotate(t, b)
		text := mustSeal(t, b, "from b")
		time.Sleep(time.Second) // a has read the ring within this second
		wantOpen(t, a, text, "from b")

		before := r.reads
		forged, _ := base64.RawURLEncoding.DecodeString(text)
		forged[1] = 0xee // a key id that nobody has
		unknown := base64.RawURLEncoding.EncodeToString(forged)
		for range 100 {
			wantInvalid(t, a, unknown)
		}
		if got := r.reads - before; got > 1 {
			t.Errorf("100 unknown key ids within a second read the ring %d times, want at most once", got)
		}
	})
}

// A process that opens nothing hears of a rotation too, within a minute.
func TestSealingFollowsARotation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &ring{}
		a, b := newSealer(t, r, clock.System{}), newSealer(t, r, clock.System{})
		rotate(t, b)
		want := keyID(t, mustSeal(t, b, "x"))
		if keyID(t, mustSeal(t, a, "x")) == want {
			t.Error("a knows of the rotation at once: this test shows nothing")
		}
		time.Sleep(time.Minute)
		if keyID(t, mustSeal(t, a, "x")) != want {
			t.Error("a still seals with the old key a minute after the rotation")
		}
	})
}

func TestTwoProcessesRotateAtOnce(t *testing.T) {
	r, c := &ring{}, clock.NewManual(start)
	sealers := []*seal.Sealer{newSealer(t, r, c), newSealer(t, r, c), newSealer(t, r, c)}
	var wg sync.WaitGroup
	for _, s := range sealers {
		wg.Go(func() { rotate(t, s) })
	}
	wg.Wait()
	if n := len(r.keys); n < 2 || n > 4 {
		t.Errorf("%d keys, want 2 to 4", n)
	}
	wantOpen(t, sealers[0], mustSeal(t, sealers[0], "x"), "x")
}

func TestRingThatFails(t *testing.T) {
	down := errors.New("the disk is gone")
	if _, err := seal.New(context.Background(), &ring{down: down}, clock.System{}, rand.Reader); !errors.Is(err, down) {
		t.Errorf("New: %v, want the ring's error", err)
	}
	r, c := &ring{}, clock.NewManual(start)
	s := newSealer(t, r, c)
	text := mustSeal(t, s, "x")
	r.down = down
	if err := s.Rotate(context.Background()); !errors.Is(err, down) {
		t.Errorf("Rotate: %v, want the ring's error", err)
	}
	wantOpen(t, s, text, "x")
	wantOpen(t, s, mustSeal(t, s, "y"), "y")
}

func TestNoRandomness(t *testing.T) {
	gone := errors.New("no entropy")
	if _, err := seal.New(context.Background(), &ring{}, clock.System{}, iotest.ErrReader(gone)); !errors.Is(err, gone) {
		t.Errorf("New: %v, want the reader's error", err)
	}
	s, err := seal.New(context.Background(), &ring{}, clock.System{}, io.LimitReader(rand.Reader, 32))
	if err != nil {
		t.Fatal(err)
	}
	if text, err := s.Seal(seal.PurposeCursor, time.Minute, nil, nil); err == nil {
		t.Errorf("sealed without randomness: %q", text)
	}
}

// The content of a value cannot be seen in its text.
func TestNothingReadable(t *testing.T) {
	s := newSealer(t, &ring{}, clock.NewManual(start))
	secret := "a-document-nobody-may-know"
	raw, err := base64.RawURLEncoding.DecodeString(mustSeal(t, s, secret))
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(raw, []byte(secret)) || bytes.Contains(raw, []byte("bind")) {
		t.Error("the content or the binding is readable in the sealed value")
	}
}

func FuzzOpen(f *testing.F) {
	// The same in every worker of the fuzzer.
	s, err := seal.New(context.Background(), &ring{}, clock.NewManual(start), mathrand.NewChaCha8([32]byte{1}))
	if err != nil {
		f.Fatal(err)
	}
	good := mustSeal(f, s, "content")
	f.Add(good, []byte("bind"))
	f.Add("", []byte(nil))
	f.Add(strings.Repeat("A", 70), []byte("bind"))
	f.Add(good+"\n", []byte("bind"))
	f.Fuzz(func(t *testing.T, text string, bind []byte) {
		plain, err := s.Open(seal.PurposeCursor, bind, text)
		if text == good && string(bind) == "bind" {
			if err != nil || string(plain) != "content" {
				t.Fatalf("the good value: %q, %v", plain, err)
			}
			return
		}
		if err != seal.ErrInvalid {
			t.Fatalf("Open(%q): %q, %v; want ErrInvalid", text, plain, err)
		}
	})
}

func BenchmarkSealOpen(b *testing.B) {
	s := newSealer(b, &ring{}, clock.System{})
	b.ReportAllocs()
	for b.Loop() {
		wantOpen(b, s, mustSeal(b, s, "namespace and last key"), "namespace and last key")
	}
}

// TestRotateAfter holds that only an old key is replaced, and that what it sealed still opens.
func TestRotateAfter(t *testing.T) {
	c := clock.NewManual(time.Date(2042, 1, 1, 0, 0, 0, 0, time.UTC))
	s := newSealer(t, &ring{}, c)
	if rotated, err := s.RotateAfter(t.Context(), time.Hour); rotated || err != nil {
		t.Fatalf("a fresh key: rotated %t, %v", rotated, err)
	}
	c.Advance(61 * time.Minute)
	text, err := s.Seal(seal.PurposeCursor, 15*time.Minute, []byte("b"), []byte("x"))
	if err != nil {
		t.Fatal(err)
	}
	if rotated, err := s.RotateAfter(t.Context(), time.Hour); !rotated || err != nil {
		t.Fatalf("an old key: rotated %t, %v", rotated, err)
	}
	if plain, err := s.Open(seal.PurposeCursor, []byte("b"), text); err != nil || string(plain) != "x" {
		t.Errorf("sealed before the rotation: %q, %v", plain, err)
	}
}
