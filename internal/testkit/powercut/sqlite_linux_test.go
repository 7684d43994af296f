package powercut_test

import (
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	_ "modernc.org/sqlite"

	"github.com/tabellion-mcp/tabellion/internal/testkit/powercut"
)

// rows is the number of acknowledged inserts in the SQLite tests.
const rows = 50

// openDB opens a database in WAL mode, as a store does.
func openDB(t *testing.T, path, synchronous string) *sql.DB {
	t.Helper()
	q := url.Values{"_pragma": {"journal_mode(WAL)", "synchronous(" + synchronous + ")"}}
	db := must[*sql.DB](t)(sql.Open("sqlite", "file:"+path+"?"+q.Encode()))
	t.Cleanup(func() { db.Close() })
	return db
}

// run executes a statement.
func run(t *testing.T, db *sql.DB, statement string, args ...any) {
	t.Helper()
	must[sql.Result](t)(db.Exec(statement, args...))
}

// insert adds rows, each its own transaction.
func insert(t *testing.T, db *sql.DB, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		run(t, db, "insert into t values (?, ?)", i, fmt.Sprintf("%0300d", i))
	}
}

// survivors counts the rows in an image; -1 says that there is no database or no table. A
// damaged database fails the test.
func survivors(t *testing.T, image powercut.Image, name string) int {
	t.Helper()
	path := filepath.Join(image.Dir, name)
	if _, err := os.Stat(path); os.IsNotExist(err) {
		return -1
	}
	db := openDB(t, path, "FULL")
	defer db.Close()
	var verdict string
	if err := db.QueryRow("pragma integrity_check").Scan(&verdict); err != nil || verdict != "ok" {
		t.Errorf("%s (%s): integrity check says %q, %v", image.Kind, image.Detail, verdict, err)
	}
	var n int
	if db.QueryRow("select count(*) from t where length(v) = 300").Scan(&n) != nil {
		return -1
	}
	return n
}

// fewest counts the rows in several images of this moment and returns the lowest count.
func fewest(t *testing.T, pc *powercut.FS, images int, name string) int {
	t.Helper()
	least := 1 << 30
	for _, image := range must[[]powercut.Image](t)(pc.Cut(images, t.TempDir())) {
		n := survivors(t, image, name)
		t.Logf("%s: %d rows (%s)", image.Kind, n, image.Detail)
		least = min(least, n)
	}
	return least
}

// established creates a database with an empty table, closes it and syncs its folder.
func established(t *testing.T, pc *powercut.FS) string {
	t.Helper()
	path := filepath.Join(pc.Dir(), "s.db")
	db := openDB(t, path, "FULL")
	run(t, db, "create table t (id integer primary key, v text)")
	check(t, db.Close())
	syncDir(t, pc.Dir())
	return path
}

func TestSQLiteFullKeepsEveryInsert(t *testing.T) {
	pc := powercut.MountForTest(t, 0)
	db := openDB(t, established(t, pc), "FULL")
	for i := range 5 {
		insert(t, db, i*rows/5, (i+1)*rows/5)
		if n := fewest(t, pc, 8, "s.db"); n != (i+1)*rows/5 {
			t.Fatalf("%d of %d acknowledged inserts are left", n, (i+1)*rows/5)
		}
	}
}

// A checkpoint rewrites the database itself, in the middle of inserts.
func TestSQLiteFullSurvivesCheckpoints(t *testing.T) {
	pc := powercut.MountForTest(t, 0)
	db := openDB(t, established(t, pc), "FULL")
	db.SetMaxOpenConns(1)
	run(t, db, "pragma wal_autocheckpoint = 3")
	for i := range rows {
		insert(t, db, i, i+1)
		if i%5 == 4 {
			if n := fewest(t, pc, 4, "s.db"); n != i+1 {
				t.Fatalf("%d of %d acknowledged inserts are left", n, i+1)
			}
		}
	}
}

// The control: this mode does not sync each transaction, so the test above must be able
// to see a loss here. The database stays whole.
func TestSQLiteNormalLosesInserts(t *testing.T) {
	pc := powercut.MountForTest(t, 0)
	db := openDB(t, established(t, pc), "NORMAL")
	insert(t, db, 0, rows)
	if n := fewest(t, pc, 8, "s.db"); n >= rows {
		t.Errorf("all %d inserts are left: the detector finds nothing", n)
	}
}

// The other control: after a failed sync SQLite reports the error for that insert, so it
// is not acknowledged and may be missing; those before it may not.
func TestSQLiteReportsFailedSync(t *testing.T) {
	pc := powercut.MountForTest(t, 0)
	db := openDB(t, established(t, pc), "FULL")
	insert(t, db, 0, 10)
	check(t, pc.FailSync(1, 5, "-wal"))
	if _, err := db.Exec("insert into t values (10, 'x')"); err == nil {
		t.Error("an insert whose sync failed was acknowledged")
	}
	if n := fewest(t, pc, 4, "s.db"); n < 10 {
		t.Errorf("%d of 10 acknowledged inserts are left", n)
	}
}

// What a fresh database needs besides SQLite's own syncs.
func TestSQLiteFreshDatabase(t *testing.T) {
	for _, tt := range []struct {
		name     string
		folder   bool // the database lies in a folder made for it
		syncUp   bool // that folder's parent is synced
		survives bool
	}{
		{"in a durable folder that is never synced by the caller", false, false, true},
		{"in a new folder whose parent is never synced", true, false, false},
		{"in a new folder whose parent is synced", true, true, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			pc := powercut.MountForTest(t, 0)
			name := "s.db"
			if tt.folder {
				check(t, os.Mkdir(filepath.Join(pc.Dir(), "store"), 0o755))
				name = "store/s.db"
			}
			if tt.syncUp {
				syncDir(t, pc.Dir())
			}
			check(t, pc.OnSync(func(path string, _ bool) { t.Log("synced", path) }))
			db := openDB(t, filepath.Join(pc.Dir(), name), "FULL")
			run(t, db, "create table t (id integer primary key, v text)")
			insert(t, db, 0, rows)
			n := fewest(t, pc, 12, name)
			if tt.survives != (n == rows) {
				t.Errorf("%d of %d acknowledged inserts are left", n, rows)
			}
		})
	}
}

// Cuts at every sync of a database's life: creation, inserts, checkpoints, an orderly
// close (which removes the log without syncing the folder) and a new start.
func TestSQLiteCutAtEverySync(t *testing.T) {
	pc := powercut.MountForTest(t, 0)
	var acknowledged, cuts atomic.Int64
	acknowledged.Store(-1) // the table
	into := t.TempDir()
	check(t, pc.OnSync(func(path string, _ bool) {
		want := acknowledged.Load()
		cuts.Add(1)
		images, err := pc.Cut(4, into)
		if err != nil {
			t.Error(err)
		}
		for _, image := range images {
			if n := survivors(t, image, "s.db"); int64(n) < want {
				t.Errorf("after the sync of %s, %s (%s): %d of %d rows", path, image.Kind, image.Detail, n, want)
			}
			os.RemoveAll(image.Dir)
		}
	}))
	for life := range 3 {
		db := openDB(t, filepath.Join(pc.Dir(), "s.db"), "FULL")
		db.SetMaxOpenConns(1)
		run(t, db, "create table if not exists t (id integer primary key, v text)")
		for i := range 8 {
			insert(t, db, life*8+i, life*8+i+1)
			acknowledged.Store(int64(life*8 + i + 1))
			if i == 4 {
				run(t, db, "pragma wal_checkpoint(truncate)")
			}
		}
		check(t, db.Close())
	}
	if n := cuts.Load(); n < 3*8 {
		t.Errorf("only %d syncs for %d inserts", n, 3*8)
	}
}
