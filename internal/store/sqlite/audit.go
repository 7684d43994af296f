package sqlite

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/tabellion-mcp/tabellion/internal/audit"
)

// positionBits split the key of a row: above them the number of its writer, in them its position in that writer's
// chain. Rows of one writer lie together, in order, at the end of the table while it writes.
const positionBits = 40

// chain is the end of this process' audit chain.
type chain struct {
	name     string
	number   int64 // of the writer, given with its first row; 0 before
	position int64
	hash     [32]byte
}

// head is the end of the chain, unsigned.
func (c chain) head() *audit.Head {
	return &audit.Head{Writer: c.name, Position: c.position, Hash: c.hash}
}

// insert appends rows to the chain, in the open transaction.
func (c *chain) insert(db *conn, rows []audit.Row) error {
	if len(rows) > 0 && c.number == 0 {
		result, err := db.exec("INSERT INTO audit_writers (name) VALUES (?)", c.name)
		if err != nil {
			return err
		}
		if c.number, err = result.LastInsertId(); err != nil {
			return err
		}
	}
	for _, r := range rows {
		c.position++
		c.hash = audit.Link(c.hash, r)
		_, err := db.exec("INSERT INTO audit_rows (place, hash, row) VALUES (?,?,?)",
			c.number<<positionBits|c.position, c.hash[:], []byte(r))
		if err != nil {
			return err
		}
	}
	return nil
}

// AppendAudit implements audit.Log.
func (s *Store) AppendAudit(ctx context.Context, rows []audit.Row) error {
	return s.submit(ctx, func(t *tx) error {
		for _, r := range rows {
			t.audit(r)
		}
		return nil
	})
}

// AuditHead implements audit.Log.
func (s *Store) AuditHead(context.Context) (audit.Head, error) { return *s.writer.durable.Load(), nil }

// AddAuditHead implements audit.Log.
func (s *Store) AddAuditHead(ctx context.Context, h audit.Head) error {
	cites, err := json.Marshal(h.Cites)
	if err != nil {
		return fmt.Errorf("encode audit head: %w", err)
	}
	at, err := encodeTime(h.At)
	if err != nil {
		return fmt.Errorf("encode audit head: %w", err)
	}
	return s.submit(ctx, func(t *tx) error {
		return t.write(`INSERT OR IGNORE INTO audit_heads (writer, position, hash, at, cites, signature) VALUES (?,?,?,?,?,?)`,
			h.Writer, h.Position, h.Hash[:], at, cites, h.Signature)
	})
}

// AuditHeads implements audit.Log.
func (s *Store) AuditHeads(ctx context.Context) (heads []audit.Head, err error) {
	err = s.read(ctx, func(r *reader) error {
		var bad error
		err := r.query(`SELECT writer, position, hash, at, cites, signature FROM audit_heads a
WHERE position = (SELECT max(position) FROM audit_heads b WHERE b.writer = a.writer) ORDER BY writer`,
			func(r row) error {
				h := audit.Head{Writer: r.text(0), Position: r.int(1), Hash: r.array(2), Signature: r.blob(5)}
				at, err := decodeTime(r.text(3))
				bad = errors.Join(bad, err, json.Unmarshal(r.blob(4), &h.Cites))
				h.At = at
				heads = append(heads, h)
				return nil
			})
		return errors.Join(err, bad)
	})
	return heads, err
}

// AuditRows implements audit.Log.
func (s *Store) AuditRows(ctx context.Context, writer string, after int64, limit int) (records []audit.Record, err error) {
	err = s.read(ctx, func(r *reader) error {
		var base int64
		err := r.query("SELECT number FROM audit_writers WHERE name = ?", stop(func(r row) { base = r.int(0) << positionBits }), writer)
		if err != nil || base == 0 {
			return err
		}
		return r.query(`SELECT place, hash, row FROM audit_rows WHERE place > ? AND place < ? ORDER BY place LIMIT ?`,
			func(r row) error {
				records = append(records, audit.Record{
					Writer: writer, Position: r.int(0) - base, Hash: r.array(1), Row: r.blob(2),
				})
				return nil
			}, base+max(after, 0), base+1<<positionBits, int64(limit))
	})
	return records, err
}

// AuditWriters implements audit.Log.
func (s *Store) AuditWriters(ctx context.Context) (names []string, err error) {
	err = s.read(ctx, func(r *reader) error {
		return r.query("SELECT name FROM audit_writers ORDER BY name", func(r row) error {
			names = append(names, r.text(0))
			return nil
		})
	})
	return names, err
}

// encodeTime and decodeTime keep a time exactly, the zero one too.
func encodeTime(t time.Time) (string, error) {
	text, err := t.UTC().MarshalText()
	return string(text), err
}

func decodeTime(text string) (t time.Time, err error) {
	err = t.UnmarshalText([]byte(text))
	return t, err
}
