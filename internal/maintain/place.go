package maintain

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/tabellion-mcp/tabellion/internal/store/sqlite"
)

// ErrUnfit: a server must not open the folder, or make a store in it. The error says why and what to do.
var ErrUnfit = errors.New("the folder is not to be served")

// Place tells whether a server may open a store in dir, or make one: nil, or ErrUnfit for the folder of a backup, one
// that a restore has not finished, and one whose database is lost. In the last a new store would take the bytes of every
// artifact for bytes that nothing needs.
func Place(dir string) error {
	unfit := func(why string) error { return fmt.Errorf("%s: %w: %s", dir, ErrUnfit, why) }
	if there, err := exists(filepath.Join(dir, manifestName)); err != nil || there {
		return errors.Join(err, unfit("it is a backup, which a server would change; restore it into another folder with tabellion restore"))
	}
	info, err := os.Lstat(sqlite.Database(dir))
	switch {
	case err == nil && info.Size() > 0 && info.Size() <= unfinishedMost:
		// Only then it is opened: to close the file of an open database takes its locks away.
		if unfinished, err := restoring(dir); err != nil || unfinished {
			return errors.Join(err, unfit("a restore into it was broken off; run tabellion restore again with the same backup"))
		}
		return nil
	case err == nil:
		return nil
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	for _, left := range []string{auditKey, blobFolder + "/[0-9a-f][0-9a-f]/*"} {
		found, err := fs.Glob(os.DirFS(dir), left)
		if err != nil {
			return err
		}
		if len(found) > 0 {
			return unfit("its database is lost, and other parts of a store are there; restore a backup, or move them away")
		}
	}
	return nil
}

// exists tells whether a file is there.
func exists(file string) (bool, error) {
	_, err := os.Lstat(file)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}
