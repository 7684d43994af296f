//go:build weaken

package durability_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/tabellion-mcp/tabellion/internal/store/blob"
	"github.com/tabellion-mcp/tabellion/internal/store/sqlite"
	"github.com/tabellion-mcp/tabellion/persistence"
)

// TestPowerCutsFindMissingSync holds the controls whose syncs are left out: of commits, of the bytes of artifacts, and
// of the folders that name them.
func TestPowerCutsFindMissingSync(t *testing.T) {
	for _, weakness := range []string{string(sqlite.SyncNormal), string(blob.LateSync), string(blob.NoFolderSync)} {
		t.Run(weakness, func(t *testing.T) {
			t.Setenv("TABELLION_WEAKEN", weakness)
			findLoss(t, weakness, disks{})
		})
	}
}

// TestSweepsFindMissingSyncWithCommits is the control whose removals do not keep out of the way of the calls that need
// the bytes.
func TestSweepsFindMissingSyncWithCommits(t *testing.T) {
	t.Setenv("TABELLION_WEAKEN", string(persistence.SweepDuringCommit))
	r := sweepBesideCommits(t, 300, sweepShape{publishers: 1, aborters: 1, patience: 300 * time.Millisecond, abandon: true})
	fmt.Printf("sweeps control, %s: %s\n", persistence.SweepDuringCommit, r)
	if r.clean() {
		t.Fatal("no bytes were removed under a call that needs them; the detector proves nothing")
	}
	t.Log("first violation:", r.violations[0])
}
