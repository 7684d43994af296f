package operator

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/tabellion-mcp/tabellion/fault"
	"github.com/tabellion-mcp/tabellion/internal/audit"
	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/catalog"
	"github.com/tabellion-mcp/tabellion/policy"
)

// Schemas of operator.audit.read and operator.audit.verify.
const (
	auditIn = `{"type":"object","additionalProperties":false,"properties":{
 "since":{"type":"string","maxLength":64,"description":"From then on: 1h or 7d ago, or a time in RFC 3339."},
 "until":{"type":"string","maxLength":64,"description":"Before then."},
 "subject":{"type":"string","maxLength":256,"description":"Whose entries, such as user:ana."},
 "operation":{"type":"string","maxLength":128,"description":"Such as persistence.put; with a dot at the end, all that begin so."},
 "outcome":{"type":"string","maxLength":64,"description":"ok, or a code such as policy_denied."},
 "denied":{"type":"boolean","description":"true: refusals only, of access, of credentials and for too many calls."},
 "path":{"type":"string","maxLength":1024,"description":"What the entry is about: this path, and what is below it, such as /persistence/namespaces/a."},
 "correlation":{"type":"string","maxLength":64},
 "order":{"enum":["newest","oldest"],"description":"Which entries come first: newest when absent."},
 "limit":{"type":"integer","minimum":1,"maximum":1000,"description":"100 when absent."},
 "cursor":{"type":"string","maxLength":1048576,"description":"next of the page before; with the same filters and order."}}}`

	auditOut = `{"type":"object","additionalProperties":false,"required":["entries"],"properties":{
 "entries":{"type":"array","items":{"type":"object","required":["writer","position"],"properties":{
  "writer":{"type":"string","description":"The process that wrote it."},
  "position":{"type":"integer","description":"In the chain of its writer, from 1."},
  "time":{"type":"string"},"kind":{"type":"string"},"subject":{"type":"string"},"operation":{"type":"string"},"target":{"type":"string"},
  "decision":{"type":"string"},"rule":{"type":"string"},"outcome":{"type":"string"},"correlation":{"type":"string"},"note":{"type":"string"}}}},
 "next":{"type":"string","description":"cursor of the next page, which may hold no entry; absent when all was looked at."},
 "reads":{"type":"string","description":"The file of allowed reads, which are not in the store."}}}`

	verifyOut = `{"type":"object","additionalProperties":false,"required":["writers","rows","heads","unsigned","damage"],"properties":{
 "writers":{"type":"integer"},"rows":{"type":"integer"},"heads":{"type":"integer","description":"Signed heads of chains."},
 "unsigned":{"type":"integer","description":"Rows behind the last signed head of their writer: nothing shows whether further ones are missing there."},
 "damage":{"type":"array","items":{"type":"object","additionalProperties":false,"required":["writer","position","what"],"properties":{
  "writer":{"type":"string"},"position":{"type":"integer"},"what":{"type":"string"}}}},
 "omitted":{"type":"integer","description":"Damages that are not listed."}}}`
)

// Bounds of one reading of the audit trail.
const (
	maxScanned   = 20_000 // rows looked at in one call
	mostRows     = 500    // rows of one writer that are read at once
	fewestRows   = 16
	rowsAtOnce   = 8_192   // rows in memory, of all writers, as long as each has its fewest
	maxDamages   = 1_000   // that a verification lists
	trailBytes   = 4 << 20 // of a page on the wire; a smaller limit is asked for when it is more
	verifyWithin = time.Hour
	// stale is how far behind its neighbours in a chain the time of an entry may be: an entry has the time at which its
	// call began, and is written when it ends.
	stale = time.Hour
)

// auditReadOperation reads the audit trail in the store.
func auditReadOperation(cfg Config) *catalog.Operation {
	return &catalog.Operation{
		Name: "operator.audit.read", Title: "Read the audit trail", Effects: reads, Capability: policy.OperatorRead,
		Doc: "Reads entries of the audit trail, of all processes that ever wrote, merged by time: effects, refusals, failed authentications, confirmations, changes of keys and of the surface. Allowed reads are in a file.",
		In:  catalog.MustSchema(auditIn), Out: catalog.MustSchema(auditOut),
		Bounds:  catalog.Bounds{Bytes: trailBytes},
		Targets: on(policy.OperatorRead, auditPath),
		Run: func(ctx context.Context, c *catalog.Call) (catalog.Result, error) {
			if cfg.Trail == nil {
				return catalog.Result{}, absent("the audit trail")
			}
			return readTrail(ctx, cfg, c)
		},
	}
}

// auditVerifyOperation verifies the audit trail in the store.
func auditVerifyOperation(cfg Config) *catalog.Operation {
	return &catalog.Operation{
		Name: "operator.audit.verify", Title: "Verify the audit trail", Effects: reads, Capability: policy.OperatorRead,
		Doc: "Follows the chain of every writer and checks the signed heads, so that a removed or altered entry is found.",
		In:  catalog.MustSchema(noneIn), Out: catalog.MustSchema(verifyOut),
		Bounds:  catalog.Bounds{Deadline: verifyWithin, Concurrency: 1},
		Targets: on(policy.OperatorRead, auditPath),
		Run: func(ctx context.Context, _ *catalog.Call) (catalog.Result, error) {
			if cfg.Verify == nil {
				return catalog.Result{}, absent("the audit trail")
			}
			report, err := cfg.Verify(ctx)
			return catalog.Result{Value: verified(report), Count: len(report.Damage)}, err
		},
	}
}

// verified shows what a verification found.
func verified(r audit.Report) canonjson.Value {
	listed := r.Damage[:min(len(r.Damage), maxDamages)]
	damage := make([]canonjson.Value, len(listed))
	for i, d := range listed {
		damage[i] = canonjson.Object(canonjson.M("writer", canonjson.String(d.Writer)),
			canonjson.M("position", canonjson.Int(d.Position)), canonjson.M("what", canonjson.String(d.What)))
	}
	return canonjson.Object(
		canonjson.M("writers", canonjson.Int(int64(r.Writers))), canonjson.M("rows", canonjson.Int(r.Rows)),
		canonjson.M("heads", canonjson.Int(int64(r.Heads))), canonjson.M("unsigned", canonjson.Int(r.Unsigned)),
		canonjson.M("damage", canonjson.Array(damage...)), canonjson.M("omitted", canonjson.Int(int64(len(r.Damage)-len(listed)))))
}

// readTrail runs operator.audit.read.
func readTrail(ctx context.Context, cfg Config, c *catalog.Call) (catalog.Result, error) {
	q, err := newTrailQuery(c.In, c.Now)
	if err != nil {
		return catalog.Result{}, err
	}
	m := merge{log: cfg.Trail, q: q}
	entries, more, err := m.page(ctx)
	if err != nil {
		return catalog.Result{}, err
	}
	next := canonjson.Value{}
	if more {
		next = canonjson.String(m.cursor())
	}
	return catalog.Result{Count: len(entries), Value: canonjson.Object(
		canonjson.M("entries", canonjson.Array(entries...)), canonjson.M("next", next), canonjson.M("reads", text(cfg.Reads)))}, nil
}

// trailQuery says which entries are wanted.
type trailQuery struct {
	since, until time.Time // zero: no bound
	filters      []func(canonjson.Value) bool
	oldest       bool
	limit        int
	from         map[string]int64 // by writer: the position behind which, in the order, it goes on; nil: from the start
}

// newTrailQuery reads the input.
func newTrailQuery(in canonjson.Value, now time.Time) (q trailQuery, err error) {
	if q.since, err = parseWhen("since", in.Get("since").Str(), now); err != nil {
		return q, err
	}
	if q.until, err = parseWhen("until", in.Get("until").Str(), now); err != nil {
		return q, err
	}
	if err := knownOutcome(in.Get("outcome").Str()); err != nil {
		return q, err
	}
	q.oldest, q.limit, q.filters = in.Get("order").Str() == "oldest", limitOf(in), trailFilters(in)
	if text := in.Get("cursor").Str(); text != "" {
		if q.from, err = parseCursor(text, q.oldest); err != nil {
			return q, err
		}
	}
	return q, nil
}

// outcomes are what an entry may have as its outcome, beside the codes of faults: what was done, a tool's own failure, a
// question to the client, the intent of a backup, and entries or lines that were lost.
var outcomes = []string{"ok", "error", "asked", "begun", "lost"}

// knownOutcome refuses an outcome that no entry can have: a typing error would read as "nothing happened".
func knownOutcome(want string) error {
	known := slices.Clone(outcomes)
	for _, c := range fault.Codes {
		known = append(known, string(c))
	}
	if want == "" || slices.Contains(known, want) {
		return nil
	}
	return fault.New(fault.InvalidRequest, "the outcome %s is none that an entry can have: expected one of %s", catalog.Quote(want, 64), strings.Join(known, ", "))
}

// trailFilters are the filters of an input on members of an entry.
func trailFilters(in canonjson.Value) (filters []func(canonjson.Value) bool) {
	for _, name := range []string{"subject", "outcome", "correlation"} {
		if want := in.Get(name).Str(); want != "" {
			filters = append(filters, func(e canonjson.Value) bool { return e.Get(name).Str() == want })
		}
	}
	if want := in.Get("operation").Str(); want != "" {
		filters = append(filters, func(e canonjson.Value) bool {
			got := e.Get("operation").Str()
			return got == want || strings.HasSuffix(want, ".") && strings.HasPrefix(got, want)
		})
	}
	if want := strings.TrimRight(in.Get("path").Str(), "/"); want != "" {
		filters = append(filters, func(e canonjson.Value) bool {
			rest, below := strings.CutPrefix(e.Get("target").Str(), want)
			return below && (rest == "" || rest[0] == '/')
		})
	}
	if in.Get("denied").Bool() {
		filters = append(filters, refusal)
	}
	return filters
}

// refusal tells whether an entry is of something that was refused.
func refusal(e canonjson.Value) bool {
	kind := audit.Kind(e.Get("kind").Str())
	return kind == audit.KindRefusal || kind == audit.KindAuth || e.Get("decision").Str() == "deny"
}

// wants tells whether an entry is wanted.
func (q *trailQuery) wants(r *trailRow) bool {
	if !q.since.IsZero() && r.at.Before(q.since) || !q.until.IsZero() && !r.at.Before(q.until) {
		return false
	}
	return !slices.ContainsFunc(q.filters, func(f func(canonjson.Value) bool) bool { return !f(r.entry) })
}

// place is a cursor: how far each writer's chain has been read. It holds nothing that its reader could not read, so
// it is not sealed.
type place struct {
	Oldest bool             `json:"oldest,omitempty"`
	At     map[string]int64 `json:"at"`
}

// parseCursor reads a cursor of the same order.
func parseCursor(text string, oldest bool) (map[string]int64, error) {
	var p place
	plain, err := base64.RawURLEncoding.DecodeString(text)
	if err == nil {
		err = json.Unmarshal(plain, &p)
	}
	if err != nil || p.At == nil {
		return nil, fault.New(fault.InvalidRequest, "the cursor is not the next of a page")
	}
	if p.Oldest != oldest {
		return nil, fault.New(fault.InvalidRequest, "the cursor is of the other order: begin anew, or keep the order")
	}
	return p.At, nil
}

// merge reads the chains of all writers, ordered by time. Entries of one writer stay in the order of its chain: that is
// what is signed, and clocks may be set back.
type merge struct {
	log     audit.Log
	q       trailQuery
	streams []*stream
	ended   map[string]int64 // oldest first: how far chains have been read to their end
}

// page gives the entries of one page. more tells that not everything was looked at.
func (m *merge) page(ctx context.Context) (entries []canonjson.Value, more bool, err error) {
	if err := m.open(ctx); err != nil {
		return nil, false, err
	}
	for scanned := 0; len(m.streams) > 0; scanned++ {
		if len(entries) == m.q.limit || scanned == maxScanned {
			return entries, true, nil
		}
		i := m.first()
		r := m.streams[i].row
		if m.q.wants(r) {
			entries = append(entries, r.value())
		}
		if err := m.advance(ctx, i); err != nil {
			return nil, false, err
		}
	}
	return entries, false, nil
}

// open begins a stream for each writer that has something left.
func (m *merge) open(ctx context.Context) error {
	writers, err := m.log.AuditWriters(ctx)
	if err != nil {
		return err
	}
	heads, err := m.log.AuditHeads(ctx)
	if err != nil {
		return err
	}
	signed := map[string]int64{}
	for _, h := range heads {
		signed[h.Writer] = h.Position
	}
	m.ended = map[string]int64{}
	rows := min(mostRows, max(fewestRows, rowsAtOnce/max(1, len(writers))))
	for _, w := range writers {
		from, known := m.q.from[w]
		if !m.q.oldest && m.q.from != nil && !known {
			continue // read to its beginning, or begun after the first page
		}
		s := &stream{log: m.log, writer: w, oldest: m.q.oldest, rows: rows, at: from, since: m.q.since}
		if !m.q.oldest && m.q.from == nil {
			if s.at, err = end(ctx, m.log, w, signed[w]); err != nil {
				return err
			}
			s.at++
		}
		m.streams = append(m.streams, s)
		if err := m.advance(ctx, len(m.streams)-1); err != nil {
			return err
		}
	}
	return nil
}

// end is the position of a writer's last row, which is at or behind known.
func end(ctx context.Context, log audit.Log, writer string, known int64) (int64, error) {
	for {
		rows, err := log.AuditRows(ctx, writer, known, mostRows)
		if err != nil || len(rows) == 0 {
			return known, err
		}
		known = rows[len(rows)-1].Position
	}
}

// first is the stream whose row comes next.
func (m *merge) first() (best int) {
	for i, s := range m.streams {
		if i == 0 {
			continue
		}
		if c := s.row.at.Compare(m.streams[best].row.at); m.q.oldest && c < 0 || !m.q.oldest && c > 0 {
			best = i
		}
	}
	return best
}

// advance takes the next row of a stream; a stream that has none is closed.
func (m *merge) advance(ctx context.Context, i int) error {
	s := m.streams[i]
	ok, err := s.next(ctx)
	if !ok {
		m.streams = slices.Delete(m.streams, i, i+1)
		m.ended[s.writer] = s.at
	}
	return err
}

// cursor is the place at which the page ended. Of the newest first it names the chains that are not read to their
// beginning; of the oldest first those that are begun, so that later pages find what was written meanwhile.
func (m *merge) cursor() string {
	p := place{Oldest: m.q.oldest, At: map[string]int64{}}
	for _, s := range m.streams {
		p.At[s.writer] = s.row.position + 1 // the row that waits is the first of the next page
		if m.q.oldest {
			p.At[s.writer] = s.row.position - 1
		}
	}
	if m.q.oldest {
		for w, at := range m.ended {
			p.At[w] = at
		}
	}
	text, _ := json.Marshal(p) // texts and numbers always encode
	return base64.RawURLEncoding.EncodeToString(text)
}

// stream reads the chain of one writer in one direction.
type stream struct {
	log    audit.Log
	writer string
	oldest bool
	rows   int       // read at once
	since  time.Time // newest first: what is older than this is not wanted
	at     int64     // the position that was read last
	ready  []trailRow
	row    *trailRow // the next one
}

// next moves to the next row; false at the end.
func (s *stream) next(ctx context.Context) (bool, error) {
	s.row = nil
	if len(s.ready) == 0 {
		if err := s.fill(ctx); err != nil || len(s.ready) == 0 {
			return false, err
		}
	}
	s.row, s.ready = &s.ready[0], s.ready[1:]
	return true, nil
}

// fill reads further rows. It gives up on a chain, newest first, when all rows of a piece are far too old.
func (s *stream) fill(ctx context.Context) error {
	s.ready = nil
	for len(s.ready) == 0 && (s.oldest || s.at > 1) {
		after := s.at
		if !s.oldest {
			after = max(0, s.at-1-int64(s.rows))
		}
		records, err := s.log.AuditRows(ctx, s.writer, after, s.rows)
		if err != nil {
			return err
		}
		for _, r := range records {
			if s.oldest || r.Position < s.at {
				s.ready = append(s.ready, newTrailRow(r))
			}
		}
		if !s.oldest {
			slices.Reverse(s.ready)
			s.at = after + 1
			if s.tooOld() {
				s.ready = nil
				return nil
			}
			continue
		}
		if len(records) == 0 {
			return nil
		}
		s.at = records[len(records)-1].Position
	}
	return nil
}

// tooOld tells whether all rows that were just read, and so all before them, are too old.
func (s *stream) tooOld() bool {
	if s.since.IsZero() || len(s.ready) == 0 {
		return false
	}
	limit := s.since.Add(-stale)
	return !slices.ContainsFunc(s.ready, func(r trailRow) bool { return !r.at.Before(limit) })
}

// trailRow is a row of the trail, decoded.
type trailRow struct {
	writer   string
	position int64
	at       time.Time
	entry    canonjson.Value // an object; without members when the row cannot be read
}

// newTrailRow decodes a row.
func newTrailRow(r audit.Record) trailRow {
	out := trailRow{writer: r.Writer, position: r.Position, entry: canonjson.Object()}
	entry, err := canonjson.ParseStrict(r.Row, canonjson.Limits{})
	if err != nil || entry.Kind() != canonjson.KindObject {
		out.entry = canonjson.Object(canonjson.M("note", canonjson.String("this row cannot be read; verify the audit trail")))
		return out
	}
	out.entry = entry
	out.at, _ = time.Parse(time.RFC3339, entry.Get("time").Str()) // of our own making; the zero time otherwise
	return out
}

// value shows the entry with its place in the chain.
func (r *trailRow) value() canonjson.Value {
	m := append([]canonjson.Member{}, r.entry.Without("writer", "position").Members()...)
	return canonjson.Object(append(m, canonjson.M("writer", canonjson.String(r.writer)), canonjson.M("position", canonjson.Int(r.position)))...)
}
