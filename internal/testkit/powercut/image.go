package powercut

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
)

// tree is what one image holds: the durable state and some of the unsynced changes on top.
type tree struct {
	disk  *disk
	names map[ino]map[string]ino
	files map[ino][]byte // content that differs from the durable one
}

// durable returns the state with no unsynced change.
func (d *disk) durable() *tree {
	t := &tree{disk: d, names: map[ino]map[string]ino{}, files: map[ino][]byte{}}
	for id, n := range d.nodes {
		if n.isFolder() {
			t.names[id] = maps.Clone(n.durNames)
		}
	}
	return t
}

// content returns the bytes of a file in the image, to read only.
func (t *tree) content(id ino) []byte {
	if b, ok := t.files[id]; ok {
		return b
	}
	return t.disk.nodes[id].durData
}

// own returns the bytes of a file in the image, to change.
func (t *tree) own(id ino) []byte {
	if b, ok := t.files[id]; ok {
		return b
	}
	return slices.Clone(t.disk.nodes[id].durData)
}

// apply performs one whole change.
func (t *tree) apply(o *op) {
	if o.edits == nil {
		t.files[o.file] = o.applyTo(t.own(o.file))
	}
	for _, e := range o.edits {
		e.applyTo(t.names[e.dir])
	}
}

// unsynced lists every change no sync has covered, oldest first.
func (d *disk) unsynced() []*op {
	all := slices.Clone(d.names)
	for _, n := range d.nodes {
		all = append(all, n.pending...)
	}
	slices.SortFunc(all, func(a, b *op) int { return cmp.Compare(a.seq, b.seq) })
	return all
}

// image chooses one possible state of the disk at this moment. The second result says in
// a few words what was chosen.
func (d *disk) image(kind Kind, rng *rand.Rand) (*tree, string) {
	t, ops := d.durable(), d.unsynced()
	switch kind {
	case KindSynced:
		return t, fmt.Sprintf("none of %d changes", len(ops))
	case KindPrefix:
		n := rng.IntN(len(ops) + 1)
		for _, o := range ops[:n] {
			t.apply(o)
		}
		return t, fmt.Sprintf("the first %d of %d changes", n, len(ops))
	}
	names := t.someNames(rng, d.names)
	var torn *tear
	if kind == KindTorn {
		torn = chooseTear(rng, ops)
	}
	return t, names + ", " + t.somePages(rng, ops, torn) + torn.String()
}

// share is how many of a set of changes an image takes. The extremes are where careless
// programs fail (a rename without its data, data without its rename), so they are not left to luck.
type share int

const (
	shareNone share = iota
	shareAll
	shareSome
)

// chooseShare takes each extreme in a quarter of the cases.
func chooseShare(rng *rand.Rand) share { return min(share(rng.IntN(4)), shareSome) }

// of draws how many of the first of n changes to take.
func (s share) of(rng *rand.Rand, n int) int {
	switch s {
	case shareNone:
		return 0
	case shareAll:
		return n
	}
	return rng.IntN(n + 1)
}

// someNames applies a possible set of changes of names: in each folder the first few, and
// no change without those that it needs.
func (t *tree) someNames(rng *rand.Rand, ops []*op) string {
	how := chooseShare(rng)
	total, limit, seen := map[ino]int{}, map[ino]int{}, map[ino]int{}
	for _, o := range ops {
		for _, e := range o.edits {
			total[e.dir]++
		}
	}
	stopped, taken := map[ino]bool{}, 0
	for _, o := range ops {
		for _, e := range o.edits {
			if _, ok := limit[e.dir]; !ok {
				limit[e.dir] = how.of(rng, total[e.dir])
			}
			seen[e.dir]++
			stopped[e.dir] = stopped[e.dir] || seen[e.dir] > limit[e.dir]
		}
		if slices.ContainsFunc(o.needs, func(f ino) bool { return stopped[f] }) {
			for _, e := range o.edits {
				stopped[e.dir] = true
			}
			continue
		}
		taken++
		t.apply(o)
	}
	return fmt.Sprintf("%d of %d changes of names", taken, len(ops))
}

// piece is the part of a write that lies in one page: bytes lo to hi of the file.
type piece struct{ page, lo, hi int64 }

// pieces cuts a write at page borders.
func (o *op) pieces() []piece {
	var all []piece
	for lo := o.off; lo < o.off+o.length; {
		page := lo / pageBytes
		hi := min(o.off+o.length, (page+1)*pageBytes)
		all = append(all, piece{page, lo, hi})
		lo = hi
	}
	return all
}

// tear is a write of which one page reached the disk in part.
type tear struct {
	op    *op
	piece piece
	at    int64 // border of two sectors inside the piece
	tail  bool  // the later sectors arrived, not the earlier ones
	grown bool  // the length covers the whole piece although its end did not arrive
}

// String tells what was torn, for Image.Detail.
func (t *tear) String() string {
	if t == nil {
		return ""
	}
	part := "up to"
	if t.tail {
		part = "from"
	}
	return fmt.Sprintf(", bytes %d to %d written only %s %d", t.piece.lo, t.piece.hi, part, t.at)
}

// chooseTear picks a write that spans two sectors, or returns nil when there is none.
func chooseTear(rng *rand.Rand, ops []*op) *tear {
	var all []tear
	for _, o := range ops {
		if o.data == nil {
			continue
		}
		for _, p := range o.pieces() {
			if p.firstBorder() < p.hi {
				all = append(all, tear{op: o, piece: p})
			}
		}
	}
	if len(all) == 0 {
		return nil
	}
	t := all[rng.IntN(len(all))]
	borders := (t.piece.hi-1-t.piece.firstBorder())/sectorBytes + 1
	t.at = t.piece.firstBorder() + rng.Int64N(borders)*sectorBytes
	t.tail, t.grown = rng.IntN(2) == 0, rng.IntN(2) == 0
	return &t
}

// firstBorder is the first border of sectors behind the start of p; it may lie behind p's end.
func (p piece) firstBorder() int64 { return (p.lo/sectorBytes + 1) * sectorBytes }

// somePages applies a possible set of changes of content: each page is as it was after
// some of its writes. It takes all files' changes, oldest first.
func (t *tree) somePages(rng *rand.Rand, ops []*op, torn *tear) string {
	how := chooseShare(rng)
	perFile := map[ino][]*op{}
	var files []ino // in the order of the first change, so that a seed says it all
	for _, o := range ops {
		if o.edits != nil {
			continue
		}
		if perFile[o.file] == nil {
			files = append(files, o.file)
		}
		perFile[o.file] = append(perFile[o.file], o)
	}
	taken, total := 0, 0
	for _, id := range files {
		p := newPlan(rng, how, perFile[id], torn)
		buf := t.own(id)
		for _, o := range perFile[id] {
			buf = p.apply(buf, o)
		}
		t.files[id] = buf
		taken, total = taken+p.taken, total+p.total
	}
	return fmt.Sprintf("%d of %d page writes", taken, total)
}

// pagePlan counts the writes to one page and says how many of them reach the image.
type pagePlan struct{ total, keep, seen int }

// plan says which changes of one file reach an image.
type plan struct {
	pages     map[int64]*pagePlan
	truncates int   // how many changes of length still to take
	limit     int64 // pages that end beyond it are refused
	torn      *tear // nil when it is of another file

	taken, total int // page writes, for Image.Detail
}

// newPlan draws the plan for one file's changes. A change of length is a change of
// metadata: those are taken in order. A write to space that a missing one would have made
// free is refused (limit), because the disk would not know where to put it.
func newPlan(rng *rand.Rand, how share, ops []*op, torn *tear) *plan {
	p := &plan{pages: map[int64]*pagePlan{}, limit: math.MaxInt64}
	var order []*pagePlan
	truncates, beforeTear, tornIndex := 0, 0, 0
	for _, o := range ops {
		if o.truncate {
			truncates++
			continue
		}
		for _, c := range o.pieces() {
			if p.pages[c.page] == nil {
				p.pages[c.page] = &pagePlan{}
				order = append(order, p.pages[c.page])
			}
			p.pages[c.page].total++
			p.total++
			if torn != nil && torn.op == o && torn.piece == c {
				p.torn, beforeTear, tornIndex = torn, truncates, p.pages[c.page].total
			}
		}
	}
	p.truncates = how.of(rng, truncates)
	for _, page := range order {
		page.keep = how.of(rng, page.total)
	}
	if p.torn != nil { // the torn write is the last that reached its page
		p.truncates = beforeTear
		p.pages[torn.piece.page].keep = tornIndex
	}
	return p
}

// apply performs what the plan takes of o on buf.
func (p *plan) apply(buf []byte, o *op) []byte {
	if o.truncate {
		if p.truncates == 0 {
			p.limit = min(p.limit, o.off)
			return buf
		}
		p.truncates--
		return o.applyTo(buf)
	}
	for _, c := range o.pieces() {
		page := p.pages[c.page]
		page.seen++
		if page.seen > page.keep || (c.page+1)*pageBytes > p.limit {
			continue
		}
		p.taken++
		buf = p.applyPiece(buf, o, c)
	}
	return buf
}

// applyPiece writes one page of o, or the part of it that arrived when it was torn.
func (p *plan) applyPiece(buf []byte, o *op, c piece) []byte {
	lo, hi, end := c.lo, c.hi, c.hi
	if p.torn != nil && p.torn.op == o && p.torn.piece == c {
		switch {
		case p.torn.tail:
			lo = p.torn.at
		case p.torn.grown:
			hi = p.torn.at
		default:
			hi, end = p.torn.at, p.torn.at
		}
	}
	buf = resize(buf, max(int64(len(buf)), end))
	if o.data != nil {
		copy(buf[lo:hi], o.data[lo-o.off:])
	}
	return buf
}

// walk visits every name of the image, folders before what they hold, names sorted. A
// folder's path ends in a slash and its content is nil. Paths are relative, the root is left out.
func (t *tree) walk(visit func(path string, n *node, content []byte) error) error {
	reached := map[ino]bool{}
	var down func(dir ino, prefix string) error
	down = func(dir ino, prefix string) error {
		for _, name := range slices.Sorted(maps.Keys(t.names[dir])) {
			n := t.disk.nodes[t.names[dir][name]]
			if reached[n.id] {
				return fmt.Errorf("%s%s has a second name: the model is broken", prefix, name)
			}
			reached[n.id] = true
			if !n.isFolder() {
				if err := visit(prefix+name, n, t.content(n.id)); err != nil {
					return err
				}
				continue
			}
			path := prefix + name + "/"
			if err := visit(path, n, nil); err != nil {
				return err
			}
			if err := down(n.id, path); err != nil {
				return err
			}
		}
		return nil
	}
	return down(rootIno, "")
}

// store writes the image into dir, which must not exist yet. Nothing is synced: images
// are for looking at.
func (t *tree) store(dir string) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	return t.walk(func(path string, n *node, content []byte) error {
		at := filepath.Join(dir, filepath.FromSlash(path))
		perm := os.FileMode(n.mode & 0o777)
		if n.mode&modeType == modeSocket {
			return nil
		}
		if n.isFolder() {
			if err := os.Mkdir(at, 0o700); err != nil {
				return err
			}
		} else if err := os.WriteFile(at, content, 0o600); err != nil {
			return err
		}
		return os.Chmod(at, perm) // not through the umask
	})
}
