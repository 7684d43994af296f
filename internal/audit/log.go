package audit

import (
	"context"
	"crypto/sha256"
	"time"
)

// Log is the audit part of a store. Each process that writes is a writer with a random name; its rows form a chain
// with positions 1, 2, 3, ... without gaps. Implementations are safe for concurrent use.
type Log interface {
	// AppendAudit commits rows of no effect, in order, after this writer's last row. Durable when it returns nil.
	AppendAudit(ctx context.Context, rows []Row) error
	// AuditHead is the end of this writer's chain among durable rows. Position 0: no row yet.
	AuditHead(ctx context.Context) (Head, error)
	// AddAuditHead stores a signed head. A head at a position that is stored already for its writer is ignored.
	AddAuditHead(ctx context.Context, h Head) error
	// AuditHeads gives the newest signed head of every writer, ordered by writer.
	AuditHeads(ctx context.Context) ([]Head, error)
	// AuditRows gives at most limit rows of one writer after a position, ascending; AuditWriters lists the writers.
	AuditRows(ctx context.Context, writer string, after int64, limit int) ([]Record, error)
	AuditWriters(ctx context.Context) ([]string, error)
}

// Record is a stored row with its place in its writer's chain.
type Record struct {
	Writer   string
	Position int64
	Row      Row
	Hash     [32]byte
}

// Head is a point of a writer's chain, signed: the first of a writer cites the last heads of the others.
type Head struct {
	Writer    string
	Position  int64
	Hash      [32]byte
	At        time.Time
	Cites     []Cite
	Signature []byte
}

// Cite names another writer's head as seen when this writer began.
type Cite struct {
	Writer   string
	Position int64
	Hash     [32]byte
}

// Link is the hash of a row behind prev: SHA-256 over prev and the row. The first row's prev is Genesis.
func Link(prev [32]byte, row Row) [32]byte {
	h := sha256.New()
	h.Write(prev[:])
	h.Write(row)
	var out [32]byte
	h.Sum(out[:0])
	return out
}

// Genesis is the hash before a writer's first row: it binds the chain to the writer's name.
func Genesis(writer string) [32]byte { return sha256.Sum256([]byte("tabellion-audit-1\x00" + writer)) }
