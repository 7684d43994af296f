package sqlite

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// Format tells the format of a data folder and the newest that this program knows. have is 0 for a folder that no
// program has finished making. It takes no lock, changes nothing, and may be called while a process owns the folder.
// A newer format is no error here; a file of another program is.
func Format(dir string) (have, known int, err error) {
	known = len(migrations)
	file := filepath.Join(dir, databaseName)
	header, err := firstPage(file)
	if err != nil {
		return 0, known, fmt.Errorf("read the format of data folder %s: %w", dir, err)
	}
	if len(header) == 0 {
		return 0, known, nil
	}
	if have, err = formatOf(header); err != nil {
		return 0, known, fmt.Errorf("read the format of data folder %s: %w", dir, err)
	}
	return have, known, nil
}

// Places in a database file's header (sqlite.org/fileformat2.html, section 1.3) and its length.
const (
	headerMagic     = "SQLite format 3\x00"
	headerFormat    = 60 // user_version
	headerProgram   = 68 // application_id
	headerSize      = 100
	logHeaderSize   = 32
	frameHeaderSize = 24
)

// formatOf reads the format from a header.
func formatOf(header []byte) (int, error) {
	if len(header) < headerSize || string(header[:len(headerMagic)]) != headerMagic {
		return 0, errForeign
	}
	format := int(binary.BigEndian.Uint32(header[headerFormat:]))
	program := binary.BigEndian.Uint32(header[headerProgram:])
	if program != applicationID && (program != 0 || format != 0) {
		return 0, errForeign
	}
	return format, nil
}

// firstPage gives the header that a reader of the database sees: the newest committed one of the log, or that of the
// file. It is empty for an empty file. SQLite itself cannot be asked without leaving files behind.
func firstPage(file string) ([]byte, error) {
	db, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer db.Close()
	header := make([]byte, headerSize)
	n, err := io.ReadFull(db, header)
	if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
		return nil, err
	}
	log, err := os.Open(file + "-wal")
	if errors.Is(err, fs.ErrNotExist) {
		return header[:n], nil
	}
	if err != nil {
		return nil, err
	}
	defer log.Close()
	newer, err := loggedHeader(log)
	if err != nil || newer != nil {
		return newer, err
	}
	return header[:n], nil
}

// loggedHeader gives the header of the last committed first page in a log, nil when there is none. Frames count up to
// the first whose checksum or salt is wrong (sqlite.org/fileformat2.html, section 4).
func loggedHeader(log io.Reader) (header []byte, err error) {
	head := make([]byte, logHeaderSize)
	if _, err := io.ReadFull(log, head); err != nil {
		return nil, ended(err)
	}
	var order binary.ByteOrder = binary.LittleEndian
	if binary.BigEndian.Uint32(head)&1 == 1 {
		order = binary.BigEndian
	}
	sum := logSum{order: order}
	sum.add(head[:24])
	size := binary.BigEndian.Uint32(head[8:])
	if !sum.is(head[24:]) || size < 512 || size > 1<<16 {
		return nil, nil
	}
	var pending []byte
	for frame := make([]byte, frameHeaderSize+size); ; {
		if _, err := io.ReadFull(log, frame); err != nil {
			return header, ended(err)
		}
		sum.add(frame[:8])
		sum.add(frame[frameHeaderSize:])
		if !sum.is(frame[16:]) || !bytes.Equal(frame[8:16], head[16:24]) {
			return header, nil
		}
		if binary.BigEndian.Uint32(frame) == 1 {
			pending = bytes.Clone(frame[frameHeaderSize : frameHeaderSize+headerSize])
		}
		if binary.BigEndian.Uint32(frame[4:]) != 0 && pending != nil { // a commit
			header = pending
		}
	}
}

// ended makes the end of a file no error.
func ended(err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return nil
	}
	return err
}

// logSum is the running checksum of a log.
type logSum struct {
	order  binary.ByteOrder
	s0, s1 uint32
}

// add takes in bytes, a multiple of eight.
func (s *logSum) add(b []byte) {
	for ; len(b) >= 8; b = b[8:] {
		s.s0 += s.order.Uint32(b) + s.s1
		s.s1 += s.order.Uint32(b[4:]) + s.s0
	}
}

// is compares with a checksum as it is stored.
func (s *logSum) is(stored []byte) bool {
	return binary.BigEndian.Uint32(stored) == s.s0 && binary.BigEndian.Uint32(stored[4:]) == s.s1
}

// Migrate brings a data folder to the newest format and does nothing else: Open does the same by itself. progress, if
// it is not nil, is called after each step that is durable, with its number, from 1, and how many there are. Errors
// are those of Open; a folder without a database is fs.ErrNotExist. It may be killed at any point and run again: each
// step happens whole or not at all.
func Migrate(ctx context.Context, dir string, progress func(step, of int)) (from, to int, err error) {
	if err := ctx.Err(); err != nil {
		return 0, 0, err
	}
	if _, err := os.Stat(filepath.Join(dir, databaseName)); err != nil {
		return 0, 0, fmt.Errorf("look for the database of data folder %s: %w", dir, err)
	}
	f, err := openFolder(dir, "")
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, f.close()) }()
	from, to, err = f.migrate(ctx, progress)
	if err != nil {
		return from, to, fmt.Errorf("migrate data folder %s: %w", f.dir, err)
	}
	return from, to, nil
}

// migrate opens the database, takes it through the missing steps, and closes it.
func (f *folder) migrate(ctx context.Context, progress func(step, of int)) (from, to int, err error) {
	c, err := dial(f.path(databaseName), false)
	if err != nil {
		return 0, 0, err
	}
	format, err := prepareWriter(c)
	if err != nil {
		return 0, 0, errors.Join(err, c.close())
	}
	from, to = int(format), int(format)
	for err == nil && to < len(migrations) {
		if err = ctx.Err(); err != nil {
			break
		}
		if err = migrateStep(c, to, migrations[to]); err == nil {
			to++
			err = settle(f, c)
		}
		if err == nil && progress != nil {
			progress(to-from, len(migrations)-from)
		}
	}
	return from, to, errors.Join(err, c.close(), f.sync())
}

// migrate brings the database to the newest format, one transaction a step: a kill leaves a whole older format.
func migrate(c *conn, format int64) error {
	for step := int(format); step < len(migrations); step++ {
		if err := migrateStep(c, step, migrations[step]); err != nil {
			return err
		}
	}
	return nil
}

// migrateStep leads from format step to the next.
func migrateStep(c *conn, step int, script string) error {
	err := c.script(fmt.Sprintf("BEGIN IMMEDIATE;%s;PRAGMA application_id=%d;PRAGMA user_version=%d;COMMIT",
		script, applicationID, step+1))
	if err != nil {
		return errors.Join(fmt.Errorf("migrate to format %d: %w", step+1, err), c.script("ROLLBACK"))
	}
	return nil
}
