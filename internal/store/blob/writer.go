package blob

import (
	"context"
	"errors"
	"hash"
	"os"
	"time"

	"github.com/tabellion-mcp/tabellion/persistence"
)

// errEnded answers the use of a writer after Keep or Drop.
var errEnded = errors.New("the blob was kept or dropped already: begin another one")

// bufferSize is how many bytes go to the file at once. Two buffers of it belong to a writer of a large blob: one is
// filled and hashed while the other is written, which two processor cores do at once.
const bufferSize = 256 << 10

// writeBackSize is after how many bytes their way to the disk begins, while further ones are hashed. Otherwise the disk
// would be idle until the sync.
const writeBackSize = 8 << 20

// writer is a blob on its way into a Folder: a file in incoming.
type writer struct {
	folder  *Folder
	name    string // of the part, in the folder
	file    *os.File
	hash    hash.Hash
	size    int64
	buffer  *[]byte    // not written yet; nil when there is nothing
	writing chan error // the outcome of the write under way; nil when there is none
	written int64      // bytes of the file, the write under way included
	begun   int64      // bytes from the start whose way to the disk has begun
	ended   error      // nil until Keep, Drop or a failed write; then what further use is answered
}

// Write adds p. Bytes reach the file later, and so may their error: it comes from a later Write, or from Keep. After an
// error the part is gone and every further Write and Keep gives the same error.
func (w *writer) Write(p []byte) (int, error) {
	if w.ended != nil {
		return 0, w.ended
	}
	done := 0
	for done < len(p) {
		if w.buffer == nil {
			w.buffer = w.folder.buffers.Get().(*[]byte)
		}
		buffer := *w.buffer
		n := min(len(p)-done, bufferSize-len(buffer))
		piece := p[done : done+n]
		w.hash.Write(piece)
		*w.buffer = append(buffer, piece...)
		w.size += int64(n)
		done += n
		if len(*w.buffer) == bufferSize {
			if err := w.flush(); err != nil {
				return done, w.fail(unavailable("write blob", err))
			}
		}
	}
	return done, nil
}

// flush begins to write the buffer, once the write before it has ended; the error is of that one.
func (w *writer) flush() error {
	if err := w.settle(); err != nil || w.buffer == nil {
		return err
	}
	buffer, file, pool := w.buffer, w.file, &w.folder.buffers
	w.buffer, w.writing = nil, make(chan error, 1)
	w.written += int64(len(*buffer))
	begin, end := w.begun, w.written
	if end-begin >= writeBackSize {
		w.begun = end
	}
	go func(done chan<- error) {
		_, err := file.Write(*buffer)
		*buffer = (*buffer)[:0]
		pool.Put(buffer)
		if end-begin >= writeBackSize && err == nil {
			startWriteBack(file, begin, end-begin)
		}
		done <- err
	}(w.writing)
	return nil
}

// settle waits for the write under way and gives its error.
func (w *writer) settle() error {
	if w.writing == nil {
		return nil
	}
	err := <-w.writing
	w.writing = nil
	return err
}

// Sum is the digest of what was written so far.
func (w *writer) Sum() (d persistence.Digest) {
	w.hash.Sum(d[:0])
	return d
}

// Size is the number of bytes that were taken so far.
func (w *writer) Size() int64 { return w.size }

// Keep syncs the part and gives it its name. A cancelled context is honoured at the start only: what has begun is
// finished.
func (w *writer) Keep(ctx context.Context) error {
	if w.ended != nil {
		return w.ended
	}
	if err := ctx.Err(); err != nil {
		return w.fail(err)
	}
	if err := w.folder.Healthy(); err != nil {
		return w.fail(err)
	}
	if err := w.sync(); err != nil {
		return w.fail(err)
	}
	if err := w.folder.publish(w.name, w.Sum()); err != nil {
		return w.fail(err)
	}
	w.ended = errEnded
	return nil
}

// sync makes the bytes durable and closes the file.
func (w *writer) sync() error {
	if err := errors.Join(w.flush(), w.settle()); err != nil {
		return unavailable("write blob", err)
	}
	if err := w.date(); err != nil {
		return unavailable("date blob", err)
	}
	if weak(LateSync) {
		file := w.file
		w.file = nil
		time.AfterFunc(50*time.Millisecond, func() { _ = errors.Join(file.Sync(), file.Close()) })
		return nil
	}
	if err := w.file.Sync(); err != nil {
		return w.folder.condemn("sync blob", err)
	}
	file := w.file
	w.file = nil
	if err := file.Close(); err != nil {
		return unavailable("close blob", err)
	}
	return nil
}

// date sees to it that the file is not older than the opening of the folder, which it would be after the clock was set
// back: it would pass for a blob that no call under way can need (see BlobInfo).
func (w *writer) date() error {
	info, err := w.file.Stat()
	if err != nil || !w.folder.settled(info.ModTime()) {
		return err
	}
	return w.folder.root.Chtimes(w.name, w.folder.opened, w.folder.opened)
}

// Drop removes the part. What cannot be removed now goes when the folder is opened again.
func (w *writer) Drop() error {
	if w.ended != nil {
		return nil
	}
	w.ended = errEnded
	return w.discard()
}

// fail ends the writer with err and drops the part; leftovers go when the folder is opened again.
func (w *writer) fail(err error) error {
	w.ended = err
	_ = w.discard()
	return err
}

// discard closes the file and removes the part.
func (w *writer) discard() error {
	_ = w.settle() // nobody needs what it wrote
	if w.buffer != nil {
		*w.buffer = (*w.buffer)[:0]
		w.folder.buffers.Put(w.buffer)
		w.buffer = nil
	}
	var err error
	if w.file != nil {
		err = w.file.Close()
		w.file = nil
	}
	if err = errors.Join(err, w.folder.root.Remove(w.name)); err != nil {
		return unavailable("drop blob", err)
	}
	return nil
}
