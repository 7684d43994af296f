package maintain

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tabellion-mcp/tabellion/internal/store/blob"
	"github.com/tabellion-mcp/tabellion/internal/store/sqlite"
	"github.com/tabellion-mcp/tabellion/persistence"
)

// What can be repaired, of the database and of the folder of bytes.
var (
	mendable  = []string{kindIndex, kindHead, kindInboundAbsent, kindInboundExtra, kindUsage, KindUploadBytes}
	removable = []string{KindBlobUnneeded, KindPartLeft}
)

// harmless are the kinds of damage that say nothing of what bytes are needed. While there is any other, none are removed:
// bytes that nothing seems to need may be those of an artifact whose row is lost. Bytes that cannot be read are not among
// them: what hides them may hide more.
var harmless = []string{KindBlobMissing, KindBlobSize, KindBlobDamaged, KindAuditDamaged, KindAuditKey}

// provable tells whether what the database says of bytes can be trusted: of all that was found, and what is left of it.
// A wrong usage may have been the only trace of what is lost, so it counts though it is repaired.
func provable(all, now []Finding) bool {
	return !slices.ContainsFunc(all, among([]string{kindUsage})) && !slices.ContainsFunc(now, func(f Finding) bool {
		return f.Damage && !among(harmless)(f) || f.Kind == KindOlderFormat
	})
}

// Repair repairs a data folder that no server has, as far as what is there proves what was: indexes, heads whose revision
// is whole, inbound references, usage, uploads whose bytes are missing or wrong (they wait for them again); and it
// removes bytes that nothing needs. Everything else is left, and the report says what to do. Before anything is
// changed in the database its files are copied aside, in the folder. Each step is one transaction; a repair that is
// broken off is run again. Errors are those of Check.
func Repair(ctx context.Context, dir string, o RepairOptions) (*RepairReport, error) {
	take := sqlite.Hold
	if o.DryRun {
		take = sqlite.HoldForReading
	}
	held, err := take(dir)
	if err != nil {
		return nil, err
	}
	r := &repairer{ctx: ctx, dir: dir, held: held, o: o, report: &RepairReport{Done: []Finding{}, Left: []Finding{}}}
	err = errors.Join(r.run(), held.Close())
	if err != nil {
		return nil, fmt.Errorf("repair data folder %s: %w", dir, err)
	}
	return r.report, nil
}

// repairer is one repair under way.
type repairer struct {
	ctx    context.Context
	dir    string
	held   *sqlite.Held
	o      RepairOptions
	report *RepairReport
}

// run checks, repairs, and checks again: what is gone then was repaired.
func (r *repairer) run() error {
	before, err := r.check()
	if err != nil {
		return err
	}
	if r.o.DryRun || !slices.ContainsFunc(before, repairable) {
		left := slices.DeleteFunc(slices.Clone(before), among(mendable))
		sure := provable(before, left)
		r.settle(before, func(f Finding) bool { return !repairable(f) || !sure && f.Kind == KindBlobUnneeded })
		return nil
	}
	all := before
	if slices.ContainsFunc(before, among(mendable)) {
		if all, err = r.mend(before); err != nil {
			return err
		}
	}
	now, err := r.check()
	if err != nil {
		return err
	}
	if slices.ContainsFunc(now, among(removable)) {
		all = merge(all, now)
		if err := r.remove(provable(all, now)); err != nil {
			return err
		}
		if now, err = r.check(); err != nil {
			return err
		}
	}
	r.settle(merge(all, now), func(f Finding) bool { return slices.Contains(now, f) })
	return nil
}

// settle sorts the findings into what was done and what is left.
func (r *repairer) settle(all []Finding, left func(Finding) bool) {
	for _, f := range all {
		switch {
		case left(f):
			r.report.Left = append(r.report.Left, f)
		case repairable(f):
			r.report.Done = append(r.report.Done, f)
		}
	}
}

// among tells of findings of some kinds.
func among(kinds []string) func(Finding) bool {
	return func(f Finding) bool { return slices.Contains(kinds, f.Kind) }
}

// repairable tells of a finding that Repair can do something about.
func repairable(f Finding) bool { return among(mendable)(f) || among(removable)(f) }

// merge is both lists without duplicates.
func merge(a, b []Finding) []Finding {
	known := make(map[Finding]bool, len(a))
	for _, f := range a {
		known[f] = true
	}
	all := slices.Clone(a)
	for _, f := range b {
		if !known[f] {
			all = append(all, f)
		}
	}
	return all
}

// check checks the folder, and the bytes of received uploads.
func (r *repairer) check() ([]Finding, error) {
	r.report.BytesRead = false
	if unfinished, err := restoring(r.dir); err != nil || unfinished {
		return []Finding{find(KindUnfinished, r.dir, "a restore into it was broken off, and there is no store in it yet")}, err
	}
	c := newChecker(r.ctx, r.dir, atRest{filepath.Join(r.dir, blobFolder)}, CheckOptions{ReadData: r.o.ReadData, Progress: r.o.Progress})
	c.hashUploads = true
	i, err := r.held.Inspect(r.ctx)
	if errors.Is(err, sqlite.ErrUnreadable) {
		return []Finding{find(kindDatabase, "file "+filepath.Base(sqlite.Database(r.dir)), err.Error())}, nil
	}
	if err != nil {
		return nil, err
	}
	_, older := i.Format() // then no bytes are looked at
	if err = c.run(i); err == nil {
		err = c.parts()
	}
	report, err := c.result(errors.Join(err, i.Close()))
	if err != nil {
		return nil, err
	}
	r.report.BytesRead = r.o.ReadData && !older
	return report.Findings, nil
}

// mend repairs the database, and gives all that was found before and on the way.
func (r *repairer) mend(found []Finding) (all []Finding, err error) {
	if r.report.Copy, err = r.held.CopyAside(r.ctx, ".before-repair-"+stamp(moment(r.o.Now))); err != nil {
		return nil, err
	}
	all = found
	if slices.ContainsFunc(found, among([]string{kindIndex})) {
		// With a damaged index the other rules may have seen what is not so.
		if err := r.with(func(m *sqlite.Mender) error { return m.Reindex() }); err != nil && !errors.Is(err, errMend) {
			return nil, err
		}
		if found, err = r.check(); err != nil {
			return nil, err
		}
		all = merge(all, found)
	}
	err = r.with(func(m *sqlite.Mender) error { return r.steps(m, found) })
	if errors.Is(err, errMend) { // what was not repaired is found again
		err = nil
	}
	return all, err
}

// errMend marks a step that SQLite could not do: the damage is left.
var errMend = errors.New("the database could not be repaired")

// with runs steps on the database. An error of a step does not undo the steps before it.
func (r *repairer) with(steps func(*sqlite.Mender) error) error {
	m, err := r.held.Mend(r.ctx)
	if err != nil {
		return err
	}
	err = steps(m)
	if err != nil && context.Cause(r.ctx) == nil && !errors.Is(err, persistence.ErrUnavailable) {
		err = fmt.Errorf("%w: %w", errMend, err)
	}
	return errors.Join(err, m.Close())
}

// steps repairs what was found, in an order in which each step rests on the ones before.
func (r *repairer) steps(m *sqlite.Mender, found []Finding) error {
	has := func(kinds ...string) bool { return slices.ContainsFunc(found, among(kinds)) }
	for _, f := range found {
		namespace, id, _ := strings.Cut(f.Where, "/")
		var err error
		switch f.Kind {
		case kindHead:
			_, err = m.Head(namespace, id)
		case KindUploadBytes:
			_, err = m.Pend(namespace, id)
		}
		if err != nil {
			return err
		}
	}
	if has(kindInboundAbsent, kindInboundExtra, kindHead) {
		if err := m.Inbound(); err != nil {
			return err
		}
	}
	if has(kindUsage) {
		return m.Usage()
	}
	return nil
}

// remove removes parts, which nothing can need once no transfer is under way, and bytes that nothing needs, if that is
// sure.
func (r *repairer) remove(sure bool) (err error) {
	folder, err := blob.OpenFolder(filepath.Join(r.dir, blobFolder), blob.FolderOptions{}) // removes the parts
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, folder.Close()) }()
	if !sure {
		return nil
	}
	i, err := r.held.Inspect(r.ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, i.Close()) }()
	return folder.Each(r.ctx, func(b persistence.BlobInfo) error {
		held, err := i.Held(b.Digest)
		if err != nil || held {
			return err
		}
		return folder.Delete(r.ctx, b.Digest)
	})
}
