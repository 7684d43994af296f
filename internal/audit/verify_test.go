package audit_test

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tabellion-mcp/tabellion/internal/audit"
)

// write stores rows of one process: n entries, and the signed head that Close leaves.
func write(t *testing.T, s *fakeStore, writer string, n int, signer *audit.Signer) {
	t.Helper()
	r := recorder(t, &fakeLog{fakeStore: s, writer: writer}, func(c *audit.RecorderConfig) { c.Signer = signer })
	for i := range n {
		r.Store(refusal(i))
	}
	mustClose(t, r)
}

// verify fails when the trail cannot be read.
func verify(t *testing.T, s *fakeStore, keys ...ed25519.PublicKey) audit.Report {
	t.Helper()
	report, err := audit.Verify(context.Background(), &fakeLog{fakeStore: s, writer: "reader"}, keys...)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// rechain makes the hashes of a writer's rows fit again from a position on, as somebody would who can write the store.
func rechain(s *fakeStore, writer string, from int) {
	rows := s.rows[writer]
	for i := from; i < len(rows); i++ {
		prev := audit.Genesis(writer)
		if i > 0 {
			prev = rows[i-1].Hash
		}
		rows[i].Hash, rows[i].Position = audit.Link(prev, rows[i].Row), int64(i+1)
	}
}

// Three processes one after the other: a, b and c, with 600, 5 and 5 rows.
func TestVerify(t *testing.T) {
	signer := newSigner(t)
	stranger := newSigner(t)
	tests := []struct {
		name   string
		tamper func(s *fakeStore)
		want   []string // one for each damage: a part of its text
	}{
		{"whole", func(*fakeStore) {}, nil},
		{"a row altered", func(s *fakeStore) { s.rows["a"][549].Row[5] ^= 1 }, []string{"a, position 550: the row or its hash was altered"}},
		{"a row removed", func(s *fakeStore) { s.rows["a"] = append(s.rows["a"][:499:499], s.rows["a"][500:]...) }, []string{"a, position 500: 1 rows are missing"}},
		{"the first rows removed", func(s *fakeStore) { s.rows["b"] = s.rows["b"][2:] }, []string{"b, position 1: 2 rows are missing"}},
		{"two rows exchanged", func(s *fakeStore) {
			s.rows["b"][1].Row, s.rows["b"][2].Row = s.rows["b"][2].Row, s.rows["b"][1].Row
		}, []string{"b, position 2: the row or", "b, position 3: the row or"}},
		{"a hash altered", func(s *fakeStore) { s.rows["b"][2].Hash[0] ^= 1 }, []string{"b, position 3: the row or", "b, position 4: the row or"}},
		{"a row altered and all hashes made to fit", func(s *fakeStore) {
			s.rows["b"][1].Row[5] ^= 1
			rechain(s, "b", 1)
		}, []string{"b, position 5: the signed head has another hash", "b, position 5: the head that writer c cites has another hash"}},
		{"a row removed and the rest made to fit", func(s *fakeStore) {
			s.rows["c"] = append(s.rows["c"][:1], s.rows["c"][2:]...)
			rechain(s, "c", 1)
		}, []string{"c, position 5: the rows end at 4, before the signed head"}},
		{"the tail cut off behind a signed head", func(s *fakeStore) { s.rows["c"] = s.rows["c"][:3] }, []string{"c, position 5: the rows end at 3, before the signed head"}},
		{"the tail cut off with its head", func(s *fakeStore) {
			s.rows["b"], s.heads["b"] = s.rows["b"][:3], nil
		}, []string{"b, position 5: the rows end at 3, before the head that writer c cites"}},
		{"a whole writer removed", func(s *fakeStore) {
			delete(s.rows, "b")
			delete(s.heads, "b")
		}, []string{"b, position 5: the rows end at 0, before the head that writer c cites"}},
		{"a head altered", func(s *fakeStore) { s.heads["c"][0].Hash[0] ^= 1 }, []string{"c, position 5: the signature of the head"}},
		{"a head's position altered", func(s *fakeStore) { s.heads["c"][0].Position-- }, []string{"c, position 4: the signature of the head"}},
		{"a head's time altered", func(s *fakeStore) { s.heads["c"][0].At = s.heads["c"][0].At.Add(time.Second) }, []string{"c, position 5: the signature"}},
		{"a cite removed", func(s *fakeStore) { s.heads["c"][0].Cites = nil }, []string{"c, position 5: the signature"}},
		{"a head signed by a stranger", func(s *fakeStore) {
			rechain(s, "c", 0)
			stranger.Sign(&s.heads["c"][0])
		}, []string{"c, position 5: the signature"}},
		{"a row of another writer", func(s *fakeStore) { s.rows["c"][0].Hash = audit.Link(audit.Genesis("b"), s.rows["c"][0].Row) }, []string{"c, position 1: the row or", "c, position 2: the row or"}},
		{"a position twice", func(s *fakeStore) { s.rows["c"][2].Position = 2 }, []string{"c, position 2: the row comes after position 2"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newFakeStore()
				write(t, s, "a", 600, signer)
				write(t, s, "b", 5, signer)
				write(t, s, "c", 5, signer)
				tt.tamper(s)
				report := verify(t, s, signer.Public())
				var got []string
				for _, d := range report.Damage {
					got = append(got, d.String())
				}
				if len(got) != len(tt.want) {
					t.Fatalf("damage %q, want %d", got, len(tt.want))
				}
				for i, want := range tt.want {
					if !strings.Contains(got[i], want) {
						t.Errorf("damage %q, want %q", got[i], want)
					}
				}
			})
		})
	}
}

func TestVerifyCounts(t *testing.T) {
	signer := newSigner(t)
	synctest.Test(t, func(t *testing.T) {
		s := newFakeStore()
		write(t, s, "a", 600, signer)
		l := &fakeLog{fakeStore: s, writer: "crashed"}
		for i := range 3 {
			e := refusal(i)
			if err := l.AppendAudit(context.Background(), []audit.Row{e.Encode()}); err != nil {
				t.Fatal(err)
			}
		}
		got := verify(t, s, signer.Public())
		if got.Writers != 2 || got.Rows != 603 || got.Heads != 1 || got.Unsigned != 3 || len(got.Damage) != 0 {
			t.Errorf("report %+v, want 2 writers, 603 rows, 1 head, 3 unsigned", got)
		}
	})
	if _, err := audit.Verify(context.Background(), &fakeLog{fakeStore: newFakeStore()}); err == nil {
		t.Error("verified without a key")
	}
}

func TestKeysOfSeveralServers(t *testing.T) {
	one, two := newSigner(t), newSigner(t)
	synctest.Test(t, func(t *testing.T) {
		s := newFakeStore()
		write(t, s, "a", 3, one)
		write(t, s, "b", 3, two)
		if got := verify(t, s, one.Public(), two.Public()); len(got.Damage) != 0 {
			t.Errorf("with both keys: %v", got.Damage)
		}
		if got := verify(t, s, one.Public()); len(got.Damage) != 1 || got.Damage[0].Writer != "b" {
			t.Errorf("with one key: %v, want damage of writer b", got.Damage)
		}
	})
}

func TestHeadIsSignedEachSecond(t *testing.T) {
	signer := newSigner(t)
	synctest.Test(t, func(t *testing.T) {
		s := newFakeStore()
		r := recorder(t, &fakeLog{fakeStore: s, writer: "w"}, func(c *audit.RecorderConfig) { c.Signer = signer })
		heads := func() int {
			synctest.Wait() // a tick of this very moment is done
			return len(s.heads["w"])
		}
		time.Sleep(3 * time.Second)
		if n := heads(); n != 0 {
			t.Errorf("%d heads before the first row", n)
		}
		r.Store(refusal(1))
		time.Sleep(5 * time.Second)
		r.Store(refusal(2))
		time.Sleep(5 * time.Second)
		if n := heads(); n != 2 {
			t.Errorf("%d heads, want one for each move", n)
		}
		r.Store(refusal(3))
		mustClose(t, r)
		if n := heads(); n != 3 {
			t.Errorf("%d heads after Close, want 3", n)
		}
		if got := verify(t, s, signer.Public()); len(got.Damage) != 0 || got.Unsigned != 0 {
			t.Errorf("report %+v", got)
		}
	})
}

// However often a server was restarted, a new head cites one writer only; writers that run side by side are each cited.
func TestCites(t *testing.T) {
	signer := newSigner(t)
	synctest.Test(t, func(t *testing.T) {
		s := newFakeStore()
		for i := range 20 {
			write(t, s, fmt.Sprintf("w%02d", i), 2, signer)
		}
		cites := s.heads["w19"][0].Cites
		if len(cites) != 1 || cites[0].Writer != "w18" || cites[0].Position != 2 {
			t.Errorf("cites %v, want w18 at 2", cites)
		}
		a := recorder(t, &fakeLog{fakeStore: s, writer: "a"}, func(c *audit.RecorderConfig) { c.Signer = signer })
		b := recorder(t, &fakeLog{fakeStore: s, writer: "b"}, func(c *audit.RecorderConfig) { c.Signer = signer })
		a.Store(refusal(1))
		time.Sleep(2 * time.Second)
		b.Store(refusal(1))
		time.Sleep(2 * time.Second)
		a.Store(refusal(2)) // a goes on behind what b cites
		mustClose(t, a)
		mustClose(t, b)
		write(t, s, "z", 1, signer)
		var got []string
		for _, c := range s.heads["z"][0].Cites {
			got = append(got, fmt.Sprint(c.Writer, c.Position))
		}
		if strings.Join(got, " ") != "a2 b1" {
			t.Errorf("z cites %v, want a at 2 and b at 1", got)
		}
		if report := verify(t, s, signer.Public()); len(report.Damage) != 0 {
			t.Errorf("damage %v", report.Damage)
		}
	})
}

func TestOpenSigner(t *testing.T) {
	dir := t.TempDir()
	first, err := audit.OpenSigner(dir, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	again, err := audit.OpenSigner(dir, rand.Reader)
	if err != nil || !again.Public().Equal(first.Public()) {
		t.Fatalf("the second open: %v, want the same key", err)
	}
	entries, _ := os.ReadDir(dir)
	if len(entries) != 1 || entries[0].Name() != "audit.key" {
		t.Errorf("files %v, want audit.key only", entries)
	}
	file := filepath.Join(dir, "audit.key")
	if info, _ := os.Stat(file); info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, want 0600", info.Mode().Perm())
	}
	if err := os.Chmod(file, 0o640); err != nil {
		t.Fatal(err)
	}
	if _, err := audit.OpenSigner(dir, rand.Reader); err == nil || !strings.Contains(err.Error(), "0600") {
		t.Errorf("a key that others can read: %v, want a refusal", err)
	}
	for name, text := range map[string]string{
		"empty":       "",
		"no PEM":      "secret",
		"another key": "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VuBCIEIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\n-----END PRIVATE KEY-----\n", // X25519
	} {
		other := t.TempDir()
		if err := os.WriteFile(filepath.Join(other, "audit.key"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := audit.OpenSigner(other, rand.Reader); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
