package blob_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/tabellion-mcp/tabellion/internal/store/blob"
	"github.com/tabellion-mcp/tabellion/persistence"
	"github.com/tabellion-mcp/tabellion/storetest"
)

// openAt opens a folder, and closes it at the end of the test.
func openAt(t *testing.T, dir string, o blob.FolderOptions) *blob.Folder {
	t.Helper()
	f, err := blob.OpenFolder(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return f
}

// begin begins a blob with content.
func begin(t *testing.T, b persistence.Blobs, content []byte) persistence.BlobWriter {
	t.Helper()
	w, err := b.Create(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(content); err != nil {
		t.Fatal(err)
	}
	return w
}

// keep keeps content.
func keep(t *testing.T, b persistence.Blobs, content string) persistence.Digest {
	t.Helper()
	if err := begin(t, b, []byte(content)).Keep(t.Context()); err != nil {
		t.Fatal(err)
	}
	return sha256.Sum256([]byte(content))
}

// whole tells what is wrong with the blob d of b: nil when it is there and its bytes are right.
func whole(t *testing.T, b persistence.Blobs, d persistence.Digest) error {
	t.Helper()
	r, err := b.Open(t.Context(), d)
	if err != nil {
		return err
	}
	defer r.Close()
	h := sha256.New()
	n, err := io.Copy(h, r)
	if err == nil && (n != r.Size() || persistence.Digest(h.Sum(nil)) != d) {
		err = fmt.Errorf("%d bytes under %s are not what was kept", n, d)
	}
	return err
}

// flip flips one bit of the file of d.
func flip(t *testing.T, f *blob.Folder, d persistence.Digest) {
	t.Helper()
	content, err := os.ReadFile(f.Path(d))
	if err != nil {
		t.Fatal(err)
	}
	content[len(content)/2] ^= 1
	if err := os.WriteFile(f.Path(d), content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// count gives the number of blobs that b lists.
func count(t *testing.T, b persistence.Blobs) (n int) {
	t.Helper()
	err := b.Each(t.Context(), func(persistence.BlobInfo) error {
		n++
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// parts gives the number of files in incoming.
func parts(t *testing.T, dir string) int {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(dir, "incoming"))
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

func TestFolder(t *testing.T) {
	for _, level := range []persistence.Durability{"", persistence.FileSync} {
		t.Run("durability "+string(level), func(t *testing.T) {
			o := blob.FolderOptions{Durability: level}
			dirs := map[persistence.Blobs]string{}
			at := func(t *testing.T, dir string) persistence.Blobs {
				f := openAt(t, dir, o)
				dirs[f] = dir
				return f
			}
			storetest.RunBlobs(t, storetest.BlobSuite{
				Open: func(t *testing.T) persistence.Blobs { return at(t, filepath.Join(t.TempDir(), "data", "blobs")) },
				Reopen: func(t *testing.T, b persistence.Blobs) persistence.Blobs {
					if err := b.(*blob.Folder).Close(); err != nil {
						t.Fatal(err)
					}
					return at(t, dirs[b])
				},
				Damage: func(t *testing.T, b persistence.Blobs, d persistence.Digest) { flip(t, b.(*blob.Folder), d) },
			})
		})
	}
}

func TestMemory(t *testing.T) {
	storetest.RunBlobs(t, storetest.BlobSuite{
		Open: func(*testing.T) persistence.Blobs { return blob.NewMemory() },
		Reopen: func(_ *testing.T, b persistence.Blobs) persistence.Blobs {
			return b.(*blob.Memory).Reopen()
		},
		Damage: func(t *testing.T, b persistence.Blobs, d persistence.Digest) {
			if !b.(*blob.Memory).Corrupt(d) {
				t.Fatal("there was nothing to damage")
			}
		},
	})
}

// TestLayout looks at names and modes on the disk.
func TestLayout(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "blobs")
	f := openAt(t, dir, blob.FolderOptions{})
	d := keep(t, f, "x")
	begin(t, f, []byte("part"))
	if want := filepath.Join(dir, d.String()[:2], d.String()); f.Path(d) != want {
		t.Errorf("path %s, want %s", f.Path(d), want)
	}
	files := 0
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		want := fs.FileMode(0o600)
		if e.IsDir() {
			want = 0o700
		} else {
			files++
		}
		if info.Mode().Perm() != want {
			t.Errorf("%s has mode %v, want %v", path, info.Mode().Perm(), want)
		}
		return nil
	})
	if err != nil || files != 2 {
		t.Errorf("%d files, %v; want one blob and one part", files, err)
	}
}

// TestLeftovers opens a folder in which another process was killed.
func TestLeftovers(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "blobs")
	f := openAt(t, dir, blob.FolderOptions{})
	d := keep(t, f, "x")
	late := begin(t, f, []byte("late"))
	if err := os.MkdirAll(filepath.Join(dir, "incoming", "folder", "deep"), 0o700); err != nil {
		t.Fatal(err)
	}
	again := openAt(t, dir, blob.FolderOptions{})
	if n := parts(t, dir); n != 0 {
		t.Errorf("%d parts survived", n)
	}
	if err := whole(t, again, d); err != nil {
		t.Error(err)
	}
	if err := late.Keep(t.Context()); !errors.Is(err, persistence.ErrUnavailable) {
		t.Errorf("the part was removed: got %v, want ErrUnavailable", err)
	}
	if n := count(t, again); n != 1 {
		t.Errorf("%d blobs, want 1", n)
	}
}

// TestForeign puts things into a folder that are no blobs: they are not served, not listed, and reported.
func TestForeign(t *testing.T) {
	dir, outside := filepath.Join(t.TempDir(), "blobs"), filepath.Join(t.TempDir(), "secret")
	f := openAt(t, dir, blob.FolderOptions{})
	d := keep(t, f, "x")
	sub := d.String()[:2]
	digest := func(tail string) (persistence.Digest, string) { // another name in the same subfolder
		d, ok := persistence.ParseDigest(sub + fmt.Sprintf("%062s", tail))
		if !ok {
			t.Fatal("no digest")
		}
		return d, filepath.Join(dir, sub, d.String())
	}
	link, linkPath := digest("1")
	folder, folderPath := digest("2")
	inside, insidePath := digest("3")
	err := errors.Join(
		os.WriteFile(outside, []byte("secret"), 0o600),
		os.Symlink(outside, linkPath),
		os.Symlink(d.String(), insidePath),
		os.Mkdir(folderPath, 0o700),
		os.WriteFile(filepath.Join(dir, sub, "note"), nil, 0o600),
		os.WriteFile(filepath.Join(dir, "README"), nil, 0o600),
		os.Mkdir(filepath.Join(dir, "zz"), 0o700),
		os.Mkdir(filepath.Join(dir, "AB"), 0o700),
		os.WriteFile(filepath.Join(dir, sub, fmt.Sprintf("%064d", 0)), nil, 0o600), // in the wrong subfolder
	)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range []persistence.Digest{link, folder, inside} {
		if err := whole(t, f, d); !errors.Is(err, persistence.ErrNoBlob) {
			t.Errorf("%s: got %v, want ErrNoBlob", d, err)
		}
	}
	if n := count(t, f); n != 1 {
		t.Errorf("%d blobs are listed, want 1", n)
	}
	got, err := f.Foreign(t.Context())
	want := []string{"AB", "README", "zz", sub + "/" + fmt.Sprintf("%064d", 0), sub + "/" + link.String(),
		sub + "/" + folder.String(), sub + "/" + inside.String(), sub + "/note"}
	slices.Sort(want)
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("foreign: %q, %v; want %q", got, err, want)
	}
}

// TestSubfolderLinkLeaves has a subfolder replaced by a link that leaves the folder: nothing is read or written there.
func TestSubfolderLinkLeaves(t *testing.T) {
	dir, outside := filepath.Join(t.TempDir(), "blobs"), t.TempDir()
	f := openAt(t, dir, blob.FolderOptions{})
	d := persistence.Digest(sha256.Sum256([]byte("x")))
	if err := os.Symlink(outside, filepath.Join(dir, d.String()[:2])); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(outside, d.String()), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := whole(t, f, d); err == nil {
		t.Error("a file outside of the folder was read")
	}
	if err := f.Delete(t.Context(), d); !errors.Is(err, persistence.ErrUnavailable) {
		t.Errorf("delete: got %v, want ErrUnavailable", err)
	}
	if err := begin(t, f, []byte("x")).Keep(t.Context()); !errors.Is(err, persistence.ErrUnavailable) {
		t.Errorf("keep: got %v, want ErrUnavailable", err)
	}
	entries, err := os.ReadDir(outside)
	if err != nil || len(entries) != 1 {
		t.Errorf("outside: %v, %v; want the one file that was there", entries, err)
	}
	if err := f.Healthy(); err != nil {
		t.Errorf("no sync has failed: %v", err)
	}
}

// TestClosed uses a folder after it was closed. What was opened before can be read on.
func TestClosed(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "blobs")
	f := openAt(t, dir, blob.FolderOptions{})
	d := keep(t, f, "x")
	w := begin(t, f, []byte("y"))
	r, err := f.Open(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	_, created := f.Create(t.Context())
	_, opened := f.Open(t.Context(), d)
	for name, err := range map[string]error{
		"Create": created, "Open": opened, "Keep": w.Keep(t.Context()), "Delete": f.Delete(t.Context(), d),
		"Each": f.Each(t.Context(), func(persistence.BlobInfo) error { return nil }), "Healthy": f.Healthy(),
	} {
		if !errors.Is(err, persistence.ErrUnavailable) {
			t.Errorf("%s: got %v, want ErrUnavailable", name, err)
		}
	}
	if content, err := io.ReadAll(r); err != nil || string(content) != "x" {
		t.Errorf("read %q, %v", content, err)
	}
	again := openAt(t, dir, blob.FolderOptions{})
	if n := count(t, again); n != 1 || parts(t, dir) != 0 {
		t.Errorf("%d blobs and %d parts, want one blob", n, parts(t, dir))
	}
}

// TestClockSetBack has the clock of the disk behind the opening of the folder: a new blob must not pass for settled.
func TestClockSetBack(t *testing.T) {
	f := openAt(t, filepath.Join(t.TempDir(), "blobs"), blob.FolderOptions{})
	old := keep(t, f, "old")
	ahead := blob.Opened(f).Add(time.Hour)
	blob.SetOpened(f, ahead)
	young := keep(t, f, "young")
	seen := 0
	err := f.Each(t.Context(), func(i persistence.BlobInfo) error {
		seen++
		if i.Settled != (i.Digest == old) || i.Digest == young && i.Modified.Before(ahead) {
			t.Errorf("%+v", i)
		}
		return nil
	})
	if err != nil || seen != 2 {
		t.Errorf("%d blobs, %v", seen, err)
	}
}
