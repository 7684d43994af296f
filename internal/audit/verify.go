package audit

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"slices"
)

// Report is what Verify found.
type Report struct {
	Writers int
	Rows    int64
	Heads   int
	// Unsigned counts rows behind the last signed head of their writer: those of the last second before a crash, or of
	// a process that runs. Nothing shows whether further ones are missing there.
	Unsigned int64
	Damage   []Damage // by writer and position; empty when the trail is whole
}

// Damage is one thing that is wrong.
type Damage struct {
	Writer   string
	Position int64
	What     string
}

// String names the damage for people.
func (d Damage) String() string {
	return fmt.Sprintf("writer %s, position %d: %s", d.Writer, d.Position, d.What)
}

// verifyPage is how many rows are read at once.
const verifyPage = 500

// Verify walks the chain of every writer: positions without gaps, each hash over the row and the hash before it, the
// newest signed head of each writer and what it cites. The keys are those of every process that ever signed. An error
// means that the trail could not be read; damage is no error.
func Verify(ctx context.Context, log Log, keys ...ed25519.PublicKey) (Report, error) {
	if len(keys) == 0 {
		return Report{}, errors.New("verify the audit trail: no public key is given")
	}
	heads, err := log.AuditHeads(ctx)
	if err != nil {
		return Report{}, fmt.Errorf("read the signed heads: %w", err)
	}
	writers, err := log.AuditWriters(ctx)
	if err != nil {
		return Report{}, fmt.Errorf("list the writers: %w", err)
	}
	v := &verifier{log: log, claims: map[string][]claim{}, signed: map[string]int64{}}
	v.report.Heads = len(heads)
	for i := range heads {
		v.claim(&heads[i], keys)
	}
	for w := range v.claims {
		writers = append(writers, w)
	}
	slices.Sort(writers)
	for _, w := range slices.Compact(writers) {
		if err := v.walk(ctx, w); err != nil {
			return Report{}, err
		}
	}
	slices.SortStableFunc(v.report.Damage, func(a, b Damage) int {
		return cmp.Or(cmp.Compare(a.Writer, b.Writer), cmp.Compare(a.Position, b.Position))
	})
	return v.report, nil
}

// verifier is the state of one Verify.
type verifier struct {
	log    Log
	claims map[string][]claim // by writer: what heads say of its chain
	signed map[string]int64   // by writer: position of its newest good head
	report Report
}

// claim says what hash a chain has at a position.
type claim struct {
	position int64
	hash     [32]byte
	source   string // for the report
}

// claim notes what a head says of its own writer and of those it cites, if its signature is good.
func (v *verifier) claim(h *Head, keys []ed25519.PublicKey) {
	if !h.signedBy(keys) {
		v.damage(h.Writer, h.Position, "the signature of the head is not good: the head was altered, or signed with a key that was not given")
		return
	}
	v.signed[h.Writer] = max(v.signed[h.Writer], h.Position)
	v.claims[h.Writer] = append(v.claims[h.Writer], claim{h.Position, h.Hash, "the signed head"})
	for _, c := range h.Cites {
		v.claims[c.Writer] = append(v.claims[c.Writer], claim{c.Position, c.Hash, "the head that writer " + h.Writer + " cites"})
	}
}

// damage adds to the report.
func (v *verifier) damage(writer string, position int64, format string, args ...any) {
	v.report.Damage = append(v.report.Damage, Damage{writer, position, fmt.Sprintf(format, args...)})
}

// walk follows one writer's chain.
func (v *verifier) walk(ctx context.Context, writer string) error {
	v.report.Writers++
	c := chain{v: v, writer: writer, hash: Genesis(writer), claims: v.claims[writer]}
	slices.SortFunc(c.claims, func(a, b claim) int { return cmp.Compare(a.position, b.position) })
	for {
		rows, err := v.log.AuditRows(ctx, writer, c.position, verifyPage)
		if err != nil {
			return fmt.Errorf("read the audit rows of writer %s after %d: %w", writer, c.position, err)
		}
		for i := range rows {
			if !c.step(&rows[i]) {
				return nil
			}
		}
		if len(rows) == 0 {
			break
		}
	}
	c.end()
	return nil
}

// chain is a walk along one writer's rows.
type chain struct {
	v        *verifier
	writer   string
	position int64
	hash     [32]byte
	claims   []claim // ascending, those not reached yet
}

// step checks the next row. It returns false when the rows come in no order, so that the walk would not end.
func (c *chain) step(r *Record) bool {
	if r.Position <= c.position {
		c.v.damage(c.writer, r.Position, "the row comes after position %d", c.position)
		return false
	}
	c.v.report.Rows++
	whole := r.Position == c.position+1
	if !whole {
		c.v.damage(c.writer, c.position+1, "%d rows are missing", r.Position-c.position-1)
		c.missed(r.Position)
	}
	if whole && Link(c.hash, r.Row) != r.Hash {
		c.v.damage(c.writer, r.Position, "the row or its hash was altered")
	}
	// The stored hash is gone on with, so that one altered row is one damage.
	c.position, c.hash = r.Position, r.Hash
	for len(c.claims) > 0 && c.claims[0].position == c.position {
		if c.claims[0].hash != c.hash {
			c.v.damage(c.writer, c.position, "%s has another hash: the chain was rewritten", c.claims[0].source)
		}
		c.claims = c.claims[1:]
	}
	if c.position > c.v.signed[c.writer] {
		c.v.report.Unsigned++
	}
	return true
}

// missed drops claims on rows that are missing and reported as such.
func (c *chain) missed(next int64) {
	for len(c.claims) > 0 && c.claims[0].position < next {
		c.claims = c.claims[1:]
	}
}

// end reports claims beyond the last row.
func (c *chain) end() {
	for _, claim := range c.claims {
		c.v.damage(c.writer, claim.position, "the rows end at %d, before %s: the tail was cut off", c.position, claim.source)
	}
}
