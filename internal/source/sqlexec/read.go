package sqlexec

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/source/sqlgen"
	"github.com/tabellion-mcp/tabellion/model"
	"github.com/tabellion-mcp/tabellion/model/plan"
)

// Executor carries out plans. It is safe for concurrent use; the fields are set once.
type Executor struct {
	Engine    Engine
	Generator sqlgen.Generator
	// MaxUnindexed is the largest table, in rows by the engine's estimate, that may be sorted without an index; 0 is no bound.
	MaxUnindexed int64
	Now          func() time.Time
	// Keys tells whether the database has the table for idempotency keys.
	Keys func() bool

	swept sweeper
}

// Read carries out a query.
func (x *Executor) Read(ctx context.Context, q *plan.Query) (*plan.Rows, error) {
	if err := x.checkSort(q.Root); err != nil {
		return nil, err
	}
	var out *plan.Rows
	many := q.Rows && (q.Total || len(q.Root.Kids)+len(q.Root.Aggs) > 0)
	err := x.Engine.View(ctx, many, func(c Conn) error {
		r := &reader{x: x, ctx: ctx, conn: c, q: q}
		out = &r.out
		return r.run()
	})
	var told *model.Error
	if errors.Is(err, ErrOverflow) && !errors.As(err, &told) { // in a predicate, or where groups are compared
		err = beyond("").Wrap(err)
	}
	if err != nil {
		return nil, err
	}
	return out, nil
}

// Explain gives the statements of a query. Those of relations are shown without parents.
func (x *Executor) Explain(_ context.Context, q *plan.Query) ([]string, error) {
	var out []string
	add := func(s sqlgen.Statement, err error) error {
		out = append(out, s.Text)
		return err
	}
	if q.Total {
		if err := add(x.Generator.Total(q.Root)); err != nil {
			return nil, err
		}
	}
	if !q.Rows {
		return out, nil
	}
	sel, err := x.Generator.Root(q.Root, q.Root.Limit)
	if err := add(sel.Statement, err); err != nil {
		return nil, err
	}
	return out, x.explainKids(q.Root, add)
}

// explainKids adds the statements below a block.
func (x *Executor) explainKids(b *plan.Block, add func(sqlgen.Statement, error) error) error {
	for _, set := range x.aggSets(b) {
		sel, err := x.Generator.Aggs(set.aggs, nil)
		if err := add(sel.Statement, err); err != nil {
			return err
		}
	}
	for _, k := range b.Kids {
		sel, err := x.Generator.Kids(k, nil, -1)
		if err := add(sel.Statement, err); err != nil {
			return err
		}
		if err := x.explainKids(k.Block, add); err != nil {
			return err
		}
	}
	return nil
}

// reader is one read.
type reader struct {
	x    *Executor
	ctx  context.Context
	conn Conn
	q    *plan.Query
	out  plan.Rows

	flaws []flaw
	read  int64 // bytes of cells read for relation blocks in this attempt
	most  int64 // at which an attempt is given up; 0: never
}

// flaw is a cell that cannot be shown.
type flaw struct {
	model, field string
	key          canonjson.Value // Absent when the row's _id was not read
	root         int             // the first root row that it belongs to
}

// run reads the rows, and then what belongs to them.
func (r *reader) run() error {
	if r.q.Total {
		if err := r.total(); err != nil {
			return err
		}
	}
	if !r.q.Rows {
		return nil
	}
	if err := r.root(); err != nil {
		return err
	}
	if r.q.Root.Group == nil {
		if err := r.below(); err != nil {
			return err
		}
	}
	r.cut()
	r.report()
	return nil
}

// total counts.
func (r *reader) total() error {
	s, err := r.x.Generator.Total(r.q.Root)
	if err != nil {
		return err
	}
	return r.conn.Query(r.ctx, s, func(cells []any) error {
		n, ok := asInt(cells[0])
		if !ok {
			return fmt.Errorf("a count is %v", cells[0])
		}
		r.out.Total = n
		return nil
	})
}

// root reads the root rows, as far as they fit into the bytes of the answer.
func (r *reader) root() error {
	b := r.q.Root
	limit := b.Limit
	if b.Peek && limit >= 0 {
		limit++
	}
	sel, err := r.x.Generator.Root(b, limit)
	if err != nil {
		return err
	}
	d := r.decoder(&sel)
	bytes := int64(0)
	err = r.conn.Query(r.ctx, sel.Statement, func(cells []any) error {
		if b.Peek && b.Limit >= 0 && int64(len(r.out.Rows)) == b.Limit {
			r.out.More = true
			return ErrStop
		}
		row, size, err := d.row(cells, len(r.out.Rows))
		if err != nil {
			return err
		}
		if bytes += size; r.q.MaxBytes > 0 && bytes > r.q.MaxBytes && len(r.out.Rows) > 0 {
			r.out.More = true
			r.flaws = slices.DeleteFunc(r.flaws, func(f flaw) bool { return f.root == len(r.out.Rows) })
			return ErrStop
		}
		row.Kids = make([][]plan.ReadRow, len(b.Kids))
		r.out.Rows = append(r.out.Rows, row)
		return nil
	})
	return r.x.overflow(err, sel.Cells)
}

// Bounds of what one read holds in memory for relation blocks, beside the bytes that it may answer with.
const (
	kidBytesFactor = 4
	kidBytesMore   = 1 << 20
	maxKidBytes    = 256 << 20
)

// errTooMuch says that the relation blocks of these root rows hold far more than the answer can.
var errTooMuch = errors.New("too much below")

// below reads what belongs to the root rows: for fewer of them when it is far too much.
func (r *reader) below() error {
	own := r.flaws
	for {
		r.flaws, r.read, r.most = slices.Clone(own), 0, maxKidBytes
		if r.q.MaxBytes > 0 && len(r.out.Rows) > 1 {
			r.most = min(maxKidBytes, kidBytesFactor*r.q.MaxBytes+kidBytesMore)
		}
		rows := make([]place, len(r.out.Rows))
		for i := range r.out.Rows {
			rows[i] = place{&r.out.Rows[i], i}
		}
		err := r.fill(r.q.Root, rows)
		if !errors.Is(err, errTooMuch) {
			return err
		}
		if len(r.out.Rows) < 2 {
			return model.Errorf(model.Limit, "the related rows of one %s are more than an answer can hold; give the relation a $limit", r.q.Root.Model.Name)
		}
		r.out.Rows, r.out.More = r.out.Rows[:len(r.out.Rows)/2], true
	}
}

// place is a row, and the first root row that it belongs to.
type place struct {
	*plan.ReadRow
	root int
}

// fill reads the aggregate columns and relation blocks of rows.
func (r *reader) fill(b *plan.Block, rows []place) error {
	for i := range rows {
		rows[i].Cells = rows[i].Cells[:len(b.Columns):len(b.Columns)]
	}
	if err := r.aggs(b, rows); err != nil {
		return err
	}
	for i, k := range b.Kids {
		if err := r.kid(b, i, k, rows); err != nil {
			return err
		}
	}
	return nil
}

// lookup are the distinct values by which rows of a relation are found.
type lookup struct {
	tuples []sqlgen.Tuple
	of     []int // the tuple of each parent; -1: none, a value is missing or null
	roots  []int // the first root row of each tuple
}

// lookups collects them from the parents' cells.
func lookups(b *plan.Block, local []*model.Field, rows []place) (lookup, error) {
	at := make([]int, len(local))
	for i, f := range local {
		if at[i] = slices.Index(b.Columns, f); at[i] < 0 {
			return lookup{}, fmt.Errorf("the plan joins by %s.%s and does not read it", b.Model.Name, f.Name)
		}
	}
	l := lookup{of: make([]int, len(rows))}
	seen := make(map[string]int, len(rows))
	var key []byte
	for i, row := range rows {
		key = key[:0]
		tuple := make(sqlgen.Tuple, len(at))
		for j, k := range at {
			if tuple[j] = row.Cells[k]; tuple[j].IsAbsent() || tuple[j].Kind() == canonjson.KindNull {
				tuple = nil
				break
			}
			key = append(tuple[j].AppendJSON(key), 0)
		}
		if l.of[i] = -1; tuple == nil {
			continue
		}
		n, ok := seen[string(key)]
		if !ok {
			n = len(l.tuples)
			seen[string(key)] = n
			l.tuples, l.roots = append(l.tuples, tuple), append(l.roots, row.root)
		}
		l.of[i] = n
	}
	return l, nil
}

// kid reads one relation block for all parents, and what is below it.
func (r *reader) kid(b *plan.Block, at int, k *plan.Kid, rows []place) error {
	l, err := lookups(b, k.Local, rows)
	if err != nil || len(l.tuples) == 0 {
		return err
	}
	groups, err := r.kidRows(k, l)
	if err != nil {
		return err
	}
	var below []place
	for i := range groups {
		for j := range groups[i] {
			below = append(below, place{&groups[i][j], l.roots[i]})
		}
	}
	if err := r.fill(k.Block, below); err != nil {
		return err
	}
	for i, row := range rows {
		if l.of[i] >= 0 {
			row.Kids[at] = groups[l.of[i]]
		}
	}
	return nil
}

// kidRows reads the rows of a relation block by tuple.
func (r *reader) kidRows(k *plan.Kid, l lookup) ([][]plan.ReadRow, error) {
	limit := int64(-1)
	if r.q.MaxRows > 0 {
		limit = r.q.MaxRows + 1
	}
	sel, err := r.x.Generator.Kids(k, l.tuples, limit)
	if err != nil {
		return nil, err
	}
	d := r.decoder(&sel)
	groups := make([][]plan.ReadRow, len(l.tuples))
	n := int64(0)
	err = r.conn.Query(r.ctx, sel.Statement, func(cells []any) error {
		if n++; r.q.MaxRows > 0 && n > r.q.MaxRows {
			return model.Errorf(model.Limit, "the relation %s has more than %d rows over all parents; give it a $limit or a $condition, or ask for fewer parents", k.Relation.Name, r.q.MaxRows)
		}
		parent, err := parentOf(cells, &sel, len(groups))
		if err != nil {
			return err
		}
		row, size, err := d.row(cells, l.roots[parent])
		if err != nil {
			return err
		}
		if r.read += size; r.most > 0 && r.read > r.most {
			return errTooMuch
		}
		row.Kids = make([][]plan.ReadRow, len(k.Block.Kids))
		groups[parent] = append(groups[parent], row)
		return nil
	})
	return groups, err
}

// parentOf is the number of the parent of a row.
func parentOf(cells []any, sel *sqlgen.Selection, parents int) (int, error) {
	n, ok := asInt(cells[sel.Parent])
	if !ok || n < 0 || n >= int64(parents) {
		return 0, fmt.Errorf("a row belongs to the parent %v of %d", cells[sel.Parent], parents)
	}
	return int(n), nil
}

// aggSet are aggregate columns that one statement computes.
type aggSet struct {
	aggs []*plan.Agg
	at   []int // their places in Block.Aggs
}

// aggSets puts aggregate columns over the same rows together.
func (x *Executor) aggSets(b *plan.Block) []aggSet {
	var sets []aggSet
next:
	for i, a := range b.Aggs {
		for j := range sets {
			if x.Generator.SameRows(sets[j].aggs[0], a) {
				sets[j].aggs, sets[j].at = append(sets[j].aggs, a), append(sets[j].at, i)
				continue next
			}
		}
		sets = append(sets, aggSet{[]*plan.Agg{a}, []int{i}})
	}
	return sets
}

// aggs computes the aggregate columns for rows: for the rows of a page and no others.
func (r *reader) aggs(b *plan.Block, rows []place) error {
	if len(b.Aggs) == 0 {
		return nil
	}
	for _, row := range rows {
		for _, a := range b.Aggs {
			row.Cells = append(row.Cells, nothing(a.Op))
		}
	}
	for _, set := range r.x.aggSets(b) {
		if err := r.aggSet(b, set, rows); err != nil {
			return err
		}
	}
	return nil
}

// nothing is an aggregate over no rows.
func nothing(op model.AggOp) canonjson.Value {
	if op == model.Count {
		return canonjson.Int(0)
	}
	return canonjson.Null()
}

// aggSet computes one set.
func (r *reader) aggSet(b *plan.Block, set aggSet, rows []place) error {
	l, err := lookups(b, set.aggs[0].Local, rows)
	if err != nil || len(l.tuples) == 0 {
		return err
	}
	sel, err := r.x.Generator.Aggs(set.aggs, l.tuples)
	if err != nil {
		return err
	}
	d := r.decoder(&sel)
	values := make([][]canonjson.Value, len(l.tuples))
	err = r.conn.Query(r.ctx, sel.Statement, func(cells []any) error {
		parent, err := parentOf(cells, &sel, len(values))
		if err != nil {
			return err
		}
		row, _, err := d.row(cells, l.roots[parent])
		values[parent] = row.Cells
		return err
	})
	if err != nil {
		return r.x.overflow(err, sel.Cells)
	}
	for i, row := range rows {
		if n := l.of[i]; n >= 0 && values[n] != nil {
			for j, at := range set.at {
				row.Cells[len(b.Columns)+at] = values[n][j]
			}
		}
	}
	return nil
}

// overflow turns an overflow of the database into a refusal that names the sums.
func (x *Executor) overflow(err error, cells []sqlgen.Cell) error {
	if !errors.Is(err, ErrOverflow) {
		return err
	}
	var names []string
	for _, c := range cells {
		if c.Field == nil && c.Type == model.Long && !c.Zero {
			names = append(names, c.Name)
		}
	}
	return beyond(strings.Join(names, ", ")).Wrap(err)
}

// beyond is the refusal of a sum that is too large.
func beyond(name string) *model.Error {
	if name == "" {
		name = "a $sum of the query"
	}
	return model.Errorf(model.Unrepresentable, "%s lies beyond 64 bits; sum fewer rows by a $condition, or ask for $avg", name)
}

// cut drops the root rows that do not fit into the answer. One row always comes.
func (r *reader) cut() {
	for i := range r.out.Rows {
		size := r.size(&r.out.Rows[i])
		if r.q.MaxBytes > 0 && r.out.Bytes+size > r.q.MaxBytes && i > 0 {
			r.out.Rows, r.out.More = r.out.Rows[:i], true
			return
		}
		r.out.Bytes += size
	}
}

// size is a row with all that is below it.
func (r *reader) size(row *plan.ReadRow) int64 {
	n := int64(0)
	for _, v := range row.Cells {
		n += sizeOf(v)
	}
	for _, kid := range row.Kids {
		for i := range kid {
			n += r.size(&kid[i])
		}
	}
	return n
}

// maxFlawKeys is how many rows are named for one field (models, section 2.9).
const maxFlawKeys = 10

// report gathers the cells that cannot be shown.
func (r *reader) report() {
	for _, f := range r.flaws {
		if f.root >= len(r.out.Rows) {
			continue
		}
		i := slices.IndexFunc(r.out.Unrepresentable, func(u plan.Unrepresentable) bool { return u.Model == f.model && u.Field == f.field })
		if i < 0 {
			i = len(r.out.Unrepresentable)
			r.out.Unrepresentable = append(r.out.Unrepresentable, plan.Unrepresentable{Model: f.model, Field: f.field})
		}
		u := &r.out.Unrepresentable[i]
		u.Count++
		if !f.key.IsAbsent() && len(u.Keys) < maxFlawKeys {
			u.Keys = append(u.Keys, f.key)
		}
	}
}
