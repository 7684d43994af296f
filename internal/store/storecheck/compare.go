package storecheck

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/tabellion-mcp/tabellion/persistence"
)

// Compare makes the same random calls on both stores, which are empty, and fails at the first answer that differs.
func Compare(t *testing.T, one, other persistence.Store, seed uint64, calls int) {
	t.Logf("seed %d", seed)
	g := &generator{rand: rand.New(rand.NewPCG(seed, 0)), now: start}
	for i := range calls {
		call := g.next()
		a, b := call(t, one), call(t, other)
		if a != b {
			t.Fatalf("seed %d, call %d:\n one   %s\n other %s", seed, i, a, b)
		}
	}
}

// generator makes random calls that often meet each other.
type generator struct {
	rand *rand.Rand
	now  time.Time
}

// call makes one call and says what came of it.
type call func(*testing.T, persistence.Store) string

// pick gives one of the words.
func (g *generator) pick(words ...string) string { return words[g.rand.IntN(len(words))] }

func (g *generator) namespace() string { return g.pick("ns", "Ns", "other") }
func (g *generator) id() string        { return g.pick("a", "b", "A", "a-", "a.", "_", "aa", "9") }
func (g *generator) kind() string      { return g.pick("note", "Note", "task") }

// next gives the next call, an hour later at most.
func (g *generator) next() call {
	g.now = g.now.Add(time.Duration(g.rand.Int64N(int64(time.Hour))))
	switch g.rand.IntN(6) {
	case 0, 1:
		return g.read()
	case 2, 3:
		return g.write()
	default:
		return g.writeArtifacts()
	}
}

// target is what a reference points to, existing or not.
func (g *generator) target() persistence.Ref {
	if g.rand.IntN(3) == 0 {
		return persistence.Ref{Type: persistence.RefArtifact, Namespace: g.namespace(), ID: "of-" + g.upload()}
	}
	return persistence.Ref{Type: persistence.RefDocument, Namespace: g.namespace(), ID: g.id(), Revision: 1 + g.rand.Int64N(3)}
}

// upload is the id of an upload, one of few; its artifact has the same with "of-" before it.
func (g *generator) upload() string { return fmt.Sprint("u", g.rand.IntN(8)) }

// content is one of few byte strings that artifacts hold.
func (g *generator) content() persistence.Digest { return persistence.Digest{byte(g.rand.IntN(4))} }

// read gives a View of everything that a Reader tells.
func (g *generator) read() call {
	now, namespace, id := g.now, g.namespace(), g.id()
	f := persistence.HeadFilter{
		Kind: g.pick("", "", g.kind()), IncludeDeleted: g.rand.IntN(2) == 0, After: g.pick("", "", g.id()),
		Limit: 1 + g.rand.IntN(6), MaxBytes: g.rand.IntN(3) * g.rand.IntN(60),
	}
	after := g.rand.Int64N(4)
	q := g.questions()
	return func(t *testing.T, s persistence.Store) string {
		var b bytes.Buffer
		err := s.View(t.Context(), func(r persistence.Reader) error {
			tell(&b, r, now, namespace, id, f, after)
			q.tell(&b, r, now)
			return nil
		})
		fmt.Fprintln(&b, err)
		return b.String()
	}
}

// tell writes down what a Reader answers.
func tell(b *bytes.Buffer, r persistence.Reader, now time.Time, namespace, id string, f persistence.HeadFilter, after int64) {
	h, ok, err := r.Head(namespace, id)
	fmt.Fprintln(b, namespace, id, h, ok, err)
	d, ok, err := r.HeadDocument(namespace, id)
	fmt.Fprintln(b, describe(d), ok, err)
	live, err := r.Live(persistence.Ref{Type: persistence.RefDocument, Namespace: namespace, ID: id, Revision: after})
	fmt.Fprintln(b, live, err)
	docs, more, err := r.Revisions(namespace, id, after, f.Limit, f.MaxBytes)
	fmt.Fprintln(b, len(docs), more, err)
	heads, furthermore, err := r.Heads(namespace, f)
	fmt.Fprintln(b, len(heads), furthermore, err)
	for _, d := range append(docs, heads...) {
		fmt.Fprintln(b, describe(d))
	}
	n, err := r.Usage(namespace, now)
	fmt.Fprintln(b, n, err)
}

// describe writes a document down; a null payload and none are the same.
func describe(d *persistence.Document) string {
	if d == nil {
		return "none"
	}
	c := *d
	return fmt.Sprintf("%s/%s@%d %s %s %v %v %v %q %v", c.Namespace, c.ID, c.Revision, c.Kind, c.SchemaVersion, c.Deleted,
		c.CreatedAt.UTC(), c.UpdatedAt.UTC(), c.Payload, c.References)
}

// write gives an Update of up to three documents, with a key that often is known already, and that sometimes fails
// after it wrote.
func (g *generator) write() call {
	c := persistence.Commit{Namespace: g.namespace(), Now: g.now, Forget: g.now.Add(-40 * time.Hour)}
	c.Key = g.pick("", "", "k1", "k2", "k3", fmt.Sprint("k", g.rand.IntN(100)))
	c.Fingerprint[0] = byte(g.rand.IntN(2))
	fails := g.rand.IntN(5) == 0
	value := g.pick("", "", `{"ok":true}`)
	var docs []persistence.Document
	for range g.rand.IntN(4) {
		d := persistence.Document{
			Namespace: c.Namespace, ID: g.id(), Kind: g.kind(), SchemaVersion: g.pick("1", "2"), UpdatedAt: g.now,
			Deleted: g.rand.IntN(4) == 0, Revision: g.rand.Int64N(20) / 19, // rarely a wrong one: added to what is right
		}
		if !d.Deleted {
			d.Payload = bytes.Repeat([]byte("7"), 1+g.rand.IntN(30))
			d.References = []persistence.Ref{g.target(), g.target()}[:g.rand.IntN(3)]
		}
		docs = append(docs, d)
	}
	return func(t *testing.T, s persistence.Store) string {
		ran := false
		out, err := s.Update(t.Context(), c, func(tx persistence.Tx) (o persistence.Outcome, err error) {
			ran = true
			for _, d := range docs {
				if o, err = putNext(tx, d); err != nil {
					return o, errRefused
				}
			}
			if fails {
				return o, errMine
			}
			if value != "" {
				o = persistence.Outcome{Value: []byte(value)}
			}
			return o, nil
		})
		return fmt.Sprintf("%+v ran %v: %s %d %q %v, %v", c.Key, ran, out.ID, out.Revision, out.Value, out.Replayed, err)
	}
}

// errRefused stands for a store's own words.
var errRefused = errors.New("refused")

// putNext writes d behind the head, d.Revision too far.
func putNext(tx persistence.Tx, d persistence.Document) (persistence.Outcome, error) {
	h, ok, err := tx.Head(d.Namespace, d.ID)
	if err != nil {
		return persistence.Outcome{}, err
	}
	d.Revision += h.Revision + 1
	d.CreatedAt = d.UpdatedAt
	if ok {
		d.CreatedAt = h.CreatedAt
	}
	return persistence.Outcome{ID: d.ID, Revision: d.Revision}, tx.PutRevision(&d)
}
