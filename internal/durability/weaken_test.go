//go:build weaken

package durability_test

import (
	"fmt"
	"testing"

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

// TestSweepsFindMissingSyncOfCommits is the control whose removals meet the calls that need the bytes: what excludes the
// two from each other is missing.
func TestSweepsFindMissingSyncOfCommits(t *testing.T) {
	t.Setenv("TABELLION_WEAKEN", string(persistence.SweepDuringCommit))
	run := sweepBesideCommits(t, 200)
	fmt.Printf("sweeps control, %s: %s\n", persistence.SweepDuringCommit, run)
	if len(run.violations) == 0 {
		t.Errorf("bytes were removed under no commit in %s; the detector proves nothing", run)
	}
}
