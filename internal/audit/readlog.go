package audit

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Names of the files of allowed reads: the one that is written, and the full ones, numbered upwards.
const (
	readsFile   = "audit-reads.jsonl"
	readsPrefix = "audit-reads."
	readsSuffix = ".jsonl"
)

// readLog writes lines to a file that is rotated by size. It keeps lines in memory until flush; when they are more
// than its bound, further ones are lost and counted.
type readLog struct {
	root     *os.Root
	maxBytes int64 // of one file
	keep     int   // full files that are kept
	bound    int   // bytes in memory

	mu      sync.Mutex
	pending []byte
	dropped int64 // lines lost and not yet told of in the file
	lost    int64 // lines lost in all
	closed  bool

	// The file belongs to flush, which holds writing.
	writing sync.Mutex
	file    *os.File
	size    int64
	spare   []byte
	err     error // of the last flush
}

// openReadLog opens the folder. The file is opened by the first flush.
func openReadLog(dir string, maxBytes int64, keep, bound int) (*readLog, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open the folder of the audit files: %w", err)
	}
	return &readLog{root: root, maxBytes: maxBytes, keep: keep, bound: bound}, nil
}

// add keeps one line. full tells that a flush should come soon.
func (l *readLog) add(e *Entry) (full bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || len(l.pending) >= l.bound {
		l.lost++
		l.dropped++
		return true
	}
	if l.dropped > 0 {
		told := Entry{Time: e.Time, Kind: KindRead, Outcome: "lost", Count: int(l.dropped), Note: "lines before this one were lost: they could not be written in time"}
		l.pending = append(told.Append(l.pending), '\n')
		l.dropped = 0
	}
	l.pending = append(e.Append(l.pending), '\n')
	return len(l.pending) >= l.bound/4
}

// flush writes what is kept. What cannot be written stays for the next flush.
func (l *readLog) flush() error {
	l.writing.Lock()
	defer l.writing.Unlock()
	l.mu.Lock()
	lines := l.pending
	l.pending = l.spare[:0]
	l.mu.Unlock()
	n, err := l.write(lines)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err = err
	if n < len(lines) {
		l.pending = slices.Concat(lines[n:], l.pending)
	}
	l.spare = lines[:0]
	return err
}

// write appends lines to the file, in a new one when it is full. It returns how many bytes are written.
func (l *readLog) write(lines []byte) (int, error) {
	if len(lines) == 0 {
		return 0, nil
	}
	if l.file != nil && l.size >= l.maxBytes {
		if err := l.rotate(); err != nil {
			return 0, fmt.Errorf("rotate the audit file: %w", err)
		}
	}
	if l.file == nil {
		if err := l.open(); err != nil {
			return 0, fmt.Errorf("open the audit file: %w", err)
		}
	}
	n, err := l.file.Write(lines)
	if err != nil {
		n = bytes.LastIndexByte(lines[:n], '\n') + 1 // part of a line is taken back
		err = fmt.Errorf("write the audit file: %w", errors.Join(err, l.file.Truncate(l.size+int64(n))))
	}
	l.size += int64(n)
	return n, err
}

// open opens the file for appending. A line that a crash cut short is ended, so that it spoils no other.
func (l *readLog) open() error {
	f, err := l.root.OpenFile(readsFile, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	size, err := endLine(f)
	if err != nil {
		return errors.Join(err, f.Close())
	}
	l.file, l.size = f, size
	return nil
}

// endLine restricts an opened file to its owner, ends its last line, and gives its size.
func endLine(f *os.File) (int64, error) {
	if err := f.Chmod(0o600); err != nil {
		return 0, err
	}
	info, err := f.Stat()
	if err != nil || info.Size() == 0 {
		return 0, err
	}
	last := make([]byte, 1)
	if _, err := f.ReadAt(last, info.Size()-1); err != nil {
		return 0, err
	}
	if last[0] == '\n' {
		return info.Size(), nil
	}
	_, err = f.Write([]byte{'\n'})
	return info.Size() + 1, err
}

// rotate ends the file, names it by the next number and removes the oldest ones.
func (l *readLog) rotate() error {
	err := errors.Join(l.file.Sync(), l.file.Close())
	l.file, l.size = nil, 0
	if err != nil {
		return err
	}
	numbers, err := l.numbers()
	if err != nil {
		return err
	}
	next := 1
	if len(numbers) > 0 {
		next = numbers[len(numbers)-1] + 1
	}
	if err := l.root.Rename(readsFile, numbered(next)); err != nil {
		return err
	}
	numbers = append(numbers, next)
	for len(numbers) > l.keep {
		if err := l.root.Remove(numbered(numbers[0])); err != nil {
			return err
		}
		numbers = numbers[1:]
	}
	return nil
}

// numbered is the name of a full file.
func numbered(n int) string { return fmt.Sprintf("%s%06d%s", readsPrefix, n, readsSuffix) }

// numbers lists the numbers of the full files, ascending.
func (l *readLog) numbers() ([]int, error) {
	d, err := l.root.Open(".")
	if err != nil {
		return nil, err
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	var out []int
	for _, name := range names {
		n, err := strconv.Atoi(strings.TrimSuffix(strings.TrimPrefix(name, readsPrefix), readsSuffix))
		if err == nil && n > 0 && numbered(n) == name {
			out = append(out, n)
		}
	}
	slices.Sort(out)
	return out, nil
}

// health gives the last flush's error, how many lines were lost in all, and whether lines are being lost now.
func (l *readLog) health() (lost int64, losing bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lost, l.dropped > 0, l.err
}

// close writes what is kept, makes it durable, and closes the file. What cannot be written is lost.
func (l *readLog) close() error {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	err := l.flush()
	l.mu.Lock()
	l.lost += int64(bytes.Count(l.pending, []byte{'\n'}))
	l.mu.Unlock()
	l.writing.Lock()
	defer l.writing.Unlock()
	if l.file != nil {
		err = errors.Join(err, l.file.Sync(), l.file.Close())
		l.file = nil
	}
	return errors.Join(err, l.root.Close())
}
