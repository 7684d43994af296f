package persistence

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
)

// vault keeps bytes and their removal apart. Whoever is about to make bytes needed (a transfer that stores them, a
// commit that publishes them) uses their digest; a removal needs it alone, and looks at the metadata while it has it.
// So no sweep meets a commit (persistence.v1, section 11).
type vault struct {
	store Store
	blobs Blobs
	log   *slog.Logger

	mu      sync.Mutex
	users   map[Digest]int  // calls that use a digest; removal is one that excludes others, as -1
	freed   *sync.Cond      // tells that a removal is over
	waiting map[Digest]bool // to be removed when nobody uses them
	holds   int             // backups under way: nothing is removed
}

// newVault makes a vault.
func newVault(store Store, blobs Blobs, log *slog.Logger) *vault {
	v := &vault{store: store, blobs: blobs, log: log, users: map[Digest]int{}, waiting: map[Digest]bool{}}
	v.freed = sync.NewCond(&v.mu)
	return v
}

// use keeps the bytes of d from being removed until release. A removal under way is waited for: it takes one look at
// the metadata and one unlink.
func (v *vault) use(d Digest) (release func()) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for v.users[d] < 0 {
		v.freed.Wait()
	}
	v.users[d]++
	return sync.OnceFunc(func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		if v.users[d]--; v.users[d] == 0 {
			delete(v.users, d)
		}
	})
}

// later notes bytes that may be needed by nobody, for the next sweep.
func (v *vault) later(d Digest) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.waiting[d] = true
}

// hold puts removals off until release, for a backup that copies bytes.
func (v *vault) hold() (release func()) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.holds++
	return sync.OnceFunc(func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		v.holds--
	})
}

// claim takes d for a removal; false when somebody uses it, and then it is noted for later.
func (v *vault) claim(d Digest) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.users[d] > 0 && weak(SweepDuringCommit) {
		return true // beside the users, whom unclaim leaves alone
	}
	if v.holds > 0 || v.users[d] != 0 {
		v.waiting[d] = true
		return false
	}
	delete(v.waiting, d)
	v.users[d] = -1
	return true
}

// unclaim gives d back.
func (v *vault) unclaim(d Digest) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.users[d] < 0 {
		delete(v.users, d)
	}
	v.freed.Broadcast()
}

// remove removes the bytes of d unless something needs them, and tells whether they are gone. What cannot be told or
// done now is left for a later sweep.
func (v *vault) remove(ctx context.Context, d Digest) bool {
	if !v.claim(d) {
		return false
	}
	defer v.unclaim(d)
	ctx = context.WithoutCancel(ctx)
	held, err := v.held(ctx, d)
	if err == nil && held {
		return false
	}
	if err == nil {
		err = v.blobs.Delete(ctx, d)
	}
	if err != nil {
		v.log.WarnContext(ctx, "bytes that nothing needs could not be removed; a later sweep tries again", "digest", d, "error", err)
		v.later(d)
	}
	return err == nil
}

// held asks the metadata whether anything needs d.
func (v *vault) held(ctx context.Context, d Digest) (held bool, err error) {
	err = v.store.View(ctx, func(r Reader) (err error) {
		held, err = r.Held(d)
		return err
	})
	return held, err
}

// postponed gives and forgets the removals that were put off.
func (v *vault) postponed() []Digest {
	v.mu.Lock()
	defer v.mu.Unlock()
	out := make([]Digest, 0, len(v.waiting))
	for d := range v.waiting {
		out = append(out, d)
	}
	clear(v.waiting)
	return out
}

// verify reads the bytes of d and returns errWrongBytes when they are missing, of another size, or not d's.
func (v *vault) verify(ctx context.Context, d Digest, size int64) error {
	r, err := v.blobs.Open(ctx, d)
	if errors.Is(err, ErrNoBlob) {
		return errWrongBytes
	}
	if err != nil {
		return err
	}
	defer r.Close()
	if r.Size() != size {
		return errWrongBytes
	}
	h := sha256.New()
	n, err := io.CopyBuffer(h, reader{ctx, r}, make([]byte, 4*pieceBytes))
	switch {
	case err != nil && ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return fmt.Errorf("%w: %w", ErrUnavailable, err) // it may be readable later: nothing is concluded from it
	case n != size || Digest(h.Sum(nil)) != d:
		return errWrongBytes
	}
	return nil
}

// reader reads until its context ends.
type reader struct {
	ctx context.Context
	io.Reader
}

// Read reads unless the context has ended.
func (r reader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.Reader.Read(p)
}

// receiving knows the transfers under way, by upload.
type receiving struct {
	mu  sync.Mutex
	ids map[string]*atomic.Bool
}

// begin notes a transfer until done, and gives what tells that its upload has been closed meanwhile; ok is false when
// there is a transfer already.
func (r *receiving) begin(id string) (closed *atomic.Bool, done func(), ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ids[id] != nil {
		return nil, nil, false
	}
	if r.ids == nil {
		r.ids = map[string]*atomic.Bool{}
	}
	closed = new(atomic.Bool)
	r.ids[id] = closed
	return closed, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.ids, id)
	}, true
}

// end has the transfer of an upload that was closed stop with its next bytes, if there is one.
func (r *receiving) end(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if closed := r.ids[id]; closed != nil {
		closed.Store(true)
	}
}
