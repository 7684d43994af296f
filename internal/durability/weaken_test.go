//go:build weaken

package durability_test

import (
	"testing"

	"github.com/tabellion-mcp/tabellion/internal/store/sqlite"
)

// TestPowerCutsFindMissingSync is the control whose commits are not synced.
func TestPowerCutsFindMissingSync(t *testing.T) {
	t.Setenv("TABELLION_WEAKEN", string(sqlite.SyncNormal))
	findLoss(t, "synchronous=NORMAL", disks{})
}
