package maintain

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/tabellion-mcp/tabellion/internal/store/blob"
	"github.com/tabellion-mcp/tabellion/internal/store/sqlite"
	"github.com/tabellion-mcp/tabellion/persistence"
)

// Check checks a data folder that no server has, and changes nothing but its lock file. What is damaged is checked as far
// as it can be read; of an older format only what SQLite and the audit trail show, until it is migrated. The disk may be
// full, or such that it cannot be written. The error is sqlite.ErrLocked, sqlite.ErrNewerFormat, fs.ErrNotExist when there
// is no store, persistence.ErrUnavailable when the disk does not give what reading needs, or one of the file system.
func Check(ctx context.Context, dir string, o CheckOptions) (*CheckReport, error) {
	held, err := sqlite.HoldForReading(dir)
	if err != nil {
		return nil, err
	}
	report, err := checkHeld(ctx, held, dir, o)
	return report, errors.Join(err, held.Close())
}

// checkHeld is Check of a folder that is held.
func checkHeld(ctx context.Context, held *sqlite.Held, dir string, o CheckOptions) (*CheckReport, error) {
	c := newChecker(ctx, dir, atRest{filepath.Join(dir, blobFolder)}, o)
	if unfinished, err := restoring(dir); err != nil || unfinished {
		c.add(KindUnfinished, dir, "a restore into it was broken off, and there is no store in it yet")
		return c.report, err
	}
	i, err := held.Inspect(ctx)
	if errors.Is(err, sqlite.ErrUnreadable) {
		c.add(kindDatabase, "file "+filepath.Base(sqlite.Database(dir)), err.Error())
		return c.report, nil
	}
	if err != nil {
		return nil, fmt.Errorf("check data folder %s: %w", dir, err)
	}
	if err = c.run(i); err == nil {
		err = c.parts()
	}
	return c.result(errors.Join(err, i.Close()))
}

// CheckOpen checks a data folder beside the server that has it. The metadata is one snapshot, which keeps no writer
// waiting; while it is held the log of the database cannot be begun anew, and grows with what is written. Bytes that
// come and go meanwhile are looked at anew before anything is said of them. ErrReopened tells that the store or the bytes
// were closed before the end.
func CheckOpen(ctx context.Context, s *sqlite.Store, b *blob.Folder, o CheckOptions) (*CheckReport, error) {
	i, err := s.Inspect(ctx)
	if err != nil {
		return nil, fmt.Errorf("check the store: %w", reopened(ctx, s, err))
	}
	c := newChecker(ctx, s.Dir(), b, o)
	c.now = func(d persistence.Digest) (held bool, err error) {
		err = s.View(ctx, func(r persistence.Reader) error {
			held, err = r.Held(d)
			return err
		})
		return held, err
	}
	err = errors.Join(c.run(i), i.Close())
	if s.Closed() { // what it has found may come from that
		err = ErrReopened
	}
	return c.result(reopened(ctx, s, err))
}

// ErrReopened: the store beside which a check or a backup ran was closed, as a server does that opens it again after the
// disk has failed it. What was seen until then says nothing.
var ErrReopened = errors.New("the store was reopened meanwhile; run it again")

// reopened makes an error that comes from the closing of the store ErrReopened.
func reopened(ctx context.Context, s *sqlite.Store, err error) error {
	if err == nil || context.Cause(ctx) != nil || errors.Is(err, ErrReopened) || !s.Closed() {
		return err
	}
	return fmt.Errorf("%w (%w)", ErrReopened, err)
}

// checker is one check under way.
type checker struct {
	ctx    context.Context
	dir    string // of the audit key
	blobs  holder
	o      CheckOptions
	report *CheckReport
	i      *sqlite.Inspector

	// now tells whether a digest is needed by now; nil when nothing can have changed since the snapshot.
	now func(persistence.Digest) (bool, error)
	// hashUploads has the bytes of received uploads read without ReadData too.
	hashUploads bool
	offset      float64            // where the subset begins, see chosen
	nearest     persistence.Digest // the first behind offset: it is read however small the subset is
	buffer      []byte
	readTotal   int64
}

// newChecker begins a report.
func newChecker(ctx context.Context, dir string, blobs holder, o CheckOptions) *checker {
	if o.Now.IsZero() {
		o.Now = time.Now()
	}
	return &checker{
		ctx: ctx, dir: dir, blobs: blobs, o: o, offset: rand.Float64(), buffer: make([]byte, 256<<10),
		report: &CheckReport{At: o.Now.UTC(), Findings: []Finding{}},
	}
}

// add adds a finding to the report.
func (c *checker) add(kind, where, message string) {
	if len(c.report.Findings) >= maxFindings {
		c.report.Omitted++
		return
	}
	if f := find(kind, where, message); kind != KindUnreadable || !slices.Contains(c.report.Findings, f) { // both lists of a folder meet it
		c.report.Findings = append(c.report.Findings, f)
	}
}

// result gives the report, unless the check could not be made.
func (c *checker) result(err error) (*CheckReport, error) {
	if cause := context.Cause(c.ctx); cause != nil {
		err = cause
	}
	if err != nil {
		return nil, fmt.Errorf("check data folder %s: %w", c.dir, err)
	}
	return c.report, nil
}

// run checks everything that the snapshot shows, and what it needs.
func (c *checker) run(i *sqlite.Inspector) error {
	c.i = i
	format, older := i.Format()
	c.report.Format = format
	if older {
		c.add(KindOlderFormat, c.dir, fmt.Sprintf("the folder has format %d, which this program migrates before it uses it; only the database as such and the audit trail were checked", format))
	}
	steps := []func() error{c.count, c.rules, c.audit}
	if !older {
		steps = append(steps, c.needed, c.unneeded, c.foreign)
	}
	for _, step := range steps {
		if err := step(); errors.Is(err, sqlite.ErrUnreadable) {
			c.add(kindDatabase, "file "+filepath.Base(sqlite.Database(c.dir)), err.Error())
		} else if err != nil {
			return err
		}
	}
	return nil
}

// count counts.
func (c *checker) count() error {
	f, err := c.i.Facts()
	r := c.report
	r.Namespaces, r.Documents, r.Revisions, r.Artifacts, r.Uploads, r.AuditRows =
		f.Namespaces, f.Documents, f.Revisions, f.Artifacts, f.Uploads, f.AuditRows
	return err
}

// rules has the database checked.
func (c *checker) rules() error {
	return c.i.Rules(c.o.Progress.tell, func(f sqlite.Flaw) { c.add(string(f.Kind), f.Where, f.What) })
}

// condition is how the bytes of a digest are.
type condition struct {
	kind string // "" when nothing is wrong
	what string
	size int64
}

// needed looks at the bytes that artifacts and received uploads need: once at each digest, however many need it.
func (c *checker) needed() error {
	if err := errors.Join(c.findNearest(), c.sumUp()); err != nil {
		return err
	}
	var last persistence.Digest
	var now condition
	first := true
	return c.i.Needs(func(n sqlite.Need) (err error) {
		if first || n.Digest != last {
			if now, err = c.look(n); err != nil {
				return err
			}
			first, last = false, n.Digest
		}
		c.judge(n, now)
		return nil
	})
}

// judge tells of bytes that are not what n needs.
func (c *checker) judge(n sqlite.Need, now condition) {
	kind, what := now.kind, now.what
	if kind == "" && now.size != n.Size {
		kind, what = KindBlobSize, fmt.Sprintf("the file has %d bytes, not %d", now.size, n.Size)
	}
	switch {
	case kind == "" || kind == kindGone:
	case n.Upload && kind != KindUnreadable && kind != KindLinked:
		c.add(KindUploadBytes, n.Namespace+"/"+n.ID, fmt.Sprintf("the upload is received, and its bytes are not there or not right: %s: %s", c.blobs.Path(n.Digest), what))
	default:
		c.add(kind, fmt.Sprintf("%s/%s, file %s", n.Namespace, n.ID, c.blobs.Path(n.Digest)), what)
	}
}

// chosen tells whether the bytes of n are to be read. A subset is the digests in one stretch of their range, which
// begins elsewhere each time.
func (c *checker) chosen(n sqlite.Need) bool {
	switch {
	case n.Upload && c.hashUploads:
		return true
	case !c.o.ReadData:
		return false
	case c.o.Subset <= 0 || c.o.Subset >= 1:
		return true
	}
	return n.Digest == c.nearest || c.behind(n.Digest) < c.o.Subset
}

// behind is how far d is behind the beginning of the subset, as a share of the range of digests, which is a ring.
func (c *checker) behind(d persistence.Digest) float64 {
	at := float64(binary.BigEndian.Uint64(d[:8])>>11)/(1<<53) - c.offset
	if at < 0 {
		at++
	}
	return at
}

// findNearest finds the digest that a subset reads at least, when there is any.
func (c *checker) findNearest() error {
	if !c.o.ReadData || c.o.Subset <= 0 || c.o.Subset >= 1 {
		return nil
	}
	least := 2.0 // more than behind gives
	return c.i.Needs(func(n sqlite.Need) error {
		if at := c.behind(n.Digest); at < least {
			least, c.nearest = at, n.Digest
		}
		return nil
	})
}

// sumUp adds up what will be read, for the progress.
func (c *checker) sumUp() error {
	if !c.o.ReadData || c.o.Progress == nil {
		return nil
	}
	var last persistence.Digest
	return c.i.Needs(func(n sqlite.Need) error {
		if n.Digest != last && c.chosen(n) {
			c.readTotal += n.Size
		}
		last = n.Digest
		return nil
	})
}

// look looks at the bytes that n needs.
func (c *checker) look(n sqlite.Need) (condition, error) {
	d := n.Digest
	r, err := c.blobs.Open(c.ctx, d)
	if err != nil {
		return c.denied(d, err)
	}
	defer r.Close()
	if r.Size() != n.Size || !c.chosen(n) {
		return condition{size: r.Size()}, nil
	}
	sum, size, err := c.hash(r)
	switch {
	case err != nil:
		return c.denied(d, err)
	case size == n.Size && sum != d:
		return condition{kind: KindBlobDamaged, what: "the bytes have another digest than their name: " + sum.String()}, nil
	}
	return condition{size: size}, nil
}

// denied tells what it means that the bytes of d could not be opened or read. That they are not there is one thing, and
// that they cannot be had another: those may be good (security requirements, R13).
func (c *checker) denied(d persistence.Digest, err error) (condition, error) {
	sub := filepath.Dir(c.blobs.Path(d))
	switch {
	case context.Cause(c.ctx) != nil:
		return condition{}, context.Cause(c.ctx)
	case errors.Is(err, fs.ErrClosed):
		return condition{}, ErrReopened
	case isLink(sub):
		return condition{kind: KindLinked, what: fmt.Sprintf("%s is a link, so the bytes are not served: %v", sub, err)}, nil
	case errors.Is(err, persistence.ErrNoBlob):
		return c.missing(d)
	}
	return condition{kind: KindUnreadable, what: fmt.Sprintf("the file cannot be read: %v", err)}, nil
}

// isLink tells of a symbolic link.
func isLink(name string) bool {
	info, err := os.Lstat(name)
	return err == nil && info.Mode()&fs.ModeSymlink != 0
}

// missing confirms that bytes are missing. Beside a server they may have been removed since the snapshot, which is right
// only when nothing needs them by now.
func (c *checker) missing(d persistence.Digest) (condition, error) {
	gone := condition{kind: KindBlobMissing, what: "the file is not there"}
	if c.now == nil {
		return gone, nil
	}
	for range 2 { // needed before and after the look: then nobody removed them rightly
		held, err := c.now(d)
		if err != nil {
			return condition{}, err
		}
		if !held {
			return condition{kind: kindGone}, nil
		}
		r, err := c.blobs.Open(c.ctx, d)
		if err == nil {
			return condition{size: r.Size()}, r.Close()
		}
		if !errors.Is(err, persistence.ErrNoBlob) {
			return c.denied(d, err)
		}
	}
	return gone, nil
}

// kindGone is no finding: what needed the bytes is gone since the snapshot.
const kindGone = "gone"

// hash reads bytes to their end.
func (c *checker) hash(r io.Reader) (sum persistence.Digest, size int64, err error) {
	h := sha256.New()
	for {
		if err := context.Cause(c.ctx); err != nil {
			return sum, size, err
		}
		n, err := r.Read(c.buffer)
		h.Write(c.buffer[:n])
		size += int64(n)
		c.report.DataBytes += int64(n)
		c.o.Progress.tell(stageRead, c.report.DataBytes, c.readTotal)
		if err == io.EOF {
			h.Sum(sum[:0])
			return sum, size, nil
		}
		if err != nil {
			return sum, size, err
		}
	}
}

// unneeded looks for bytes that nothing needs. Beside a server those that came since it began are left out: a call may
// be about to need them.
func (c *checker) unneeded() error {
	var own error // of the metadata, not of the folder
	err := c.blobs.Each(c.ctx, func(b persistence.BlobInfo) error {
		c.report.Blobs++
		if !b.Settled {
			return nil
		}
		held, err := c.i.Held(b.Digest)
		if err == nil && !held && c.now != nil {
			held, err = c.now(b.Digest)
		}
		if err == nil && !held {
			c.add(KindBlobUnneeded, "file "+c.blobs.Path(b.Digest), fmt.Sprintf("nothing needs these %d bytes", b.Size))
		}
		own = err
		return err
	})
	if own != nil {
		return own
	}
	return c.listed(err)
}

// listed makes of an error of listing the folder of bytes a finding.
func (c *checker) listed(err error) error {
	switch {
	case err == nil:
	case context.Cause(c.ctx) != nil:
		return context.Cause(c.ctx)
	case errors.Is(err, fs.ErrClosed):
		return ErrReopened
	default:
		c.add(KindUnreadable, "folder "+blobFolder, fmt.Sprintf("it cannot be listed to the end: %v", err))
	}
	return nil
}

// foreign looks for what is not the server's.
func (c *checker) foreign() error {
	names, err := c.blobs.Foreign(c.ctx)
	for _, name := range names {
		file := filepath.Join(blobFolder, filepath.FromSlash(name))
		if isSubfolder(name) && isLink(filepath.Join(c.dir, file)) {
			c.add(KindLinked, "file "+file, "it is a link in the place of a folder of bytes: nothing behind it is served, and nothing is kept there")
			continue
		}
		c.add(KindForeign, "file "+file, "it is no file of the server")
	}
	return c.listed(err)
}

// parts looks for bytes of transfers that were broken off. A server removes them when it starts.
func (c *checker) parts() error {
	names, err := atRest{filepath.Join(c.dir, blobFolder)}.parts()
	for _, name := range names {
		c.add(KindPartLeft, "file "+filepath.Join(blobFolder, filepath.FromSlash(name)), "it was being received when the server ended")
	}
	return c.listed(err)
}
