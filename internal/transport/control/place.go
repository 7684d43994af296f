package control

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// Names in the data folder.
const (
	socketName = "control.sock"
	noteName   = "control.path" // says where the socket is when its path in the folder would be too long
)

// maxPath is the longest path of a socket, in bytes: sun_path of the kernel holds 108 with the final NUL, and 104 on
// some other systems.
const maxPath = 103

// place gives the path of the socket of a data folder, and whether it lies outside the folder.
func place(dir string) (path string, outside bool, err error) {
	dir, err = filepath.Abs(dir)
	if err != nil {
		return "", false, fmt.Errorf("find data folder %s: %w", dir, err)
	}
	if path = filepath.Join(dir, socketName); len(path) <= maxPath {
		return path, false, nil
	}
	sum := sha256.Sum256([]byte(dir))
	name := "tabellion-" + strconv.Itoa(os.Getuid()) + "-" + hex.EncodeToString(sum[:8])
	for _, base := range []string{os.TempDir(), "/tmp"} {
		if path = filepath.Join(base, name, socketName); len(path) <= maxPath {
			return path, true, nil
		}
	}
	return "", false, fmt.Errorf("no path of at most %d bytes for the control socket of %s", maxPath, dir)
}

// find gives the path at which the owner of dir listens.
func find(dir string) (string, error) {
	note, err := os.ReadFile(filepath.Join(dir, noteName))
	if errors.Is(err, fs.ErrNotExist) {
		path, _, err := place(dir)
		return path, err
	}
	if err != nil {
		return "", fmt.Errorf("find the control socket: %w", err)
	}
	path := strings.TrimSpace(string(note))
	if err := ours(filepath.Dir(path)); err != nil {
		return "", err
	}
	return path, nil
}

// spot is where a socket is.
type spot struct {
	path string
	note string // file that says so; "" when the socket is in the data folder
}

// clear takes back what prepare made outside the data folder, once the socket is closed: the folder, and the note. A
// folder that somebody has put something else into stays.
func (s spot) clear() error {
	if s.note == "" {
		return nil
	}
	err := remove(s.note)
	if folder := os.Remove(filepath.Dir(s.path)); folder != nil && !errors.Is(folder, fs.ErrNotExist) && !errors.Is(folder, syscall.ENOTEMPTY) {
		err = errors.Join(err, fmt.Errorf("remove the folder of the control socket: %w", folder))
	}
	return err
}

// prepare makes room for the socket: a socket that a killed owner left is removed. The caller holds the lock of the
// data folder, so no living owner can be behind it.
func prepare(dir string) (spot, error) {
	path, outside, err := place(dir)
	if err != nil {
		return spot{}, err
	}
	note := filepath.Join(dir, noteName)
	if !outside {
		return spot{path: path}, errors.Join(remove(note), remove(path))
	}
	if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return spot{}, fmt.Errorf("make the folder of the control socket: %w", err)
	}
	if err := ours(filepath.Dir(path)); err != nil {
		return spot{}, err
	}
	if err := remove(path); err != nil {
		return spot{}, err
	}
	if err := os.WriteFile(note, []byte(path+"\n"), 0o600); err != nil {
		return spot{}, fmt.Errorf("note the control socket: %w", err)
	}
	return spot{path, note}, nil
}

// remove removes a file that may be missing.
func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove a left control socket: %w", err)
	}
	return nil
}

// ours refuses a folder outside the data folder that another user made or may write to: he could put his own socket
// there.
func ours(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return fmt.Errorf("look at the folder of the control socket: %w", err)
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	uid := os.Getuid()
	if !info.IsDir() || info.Mode().Perm()&0o077 != 0 || !ok || (int(st.Uid) != uid && uid != 0) {
		return fmt.Errorf("the folder of the control socket, %s, belongs to somebody else or is open to others", dir)
	}
	return nil
}
