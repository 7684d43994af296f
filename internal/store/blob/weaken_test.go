//go:build weaken

package blob_test

import (
	"testing"

	"github.com/tabellion-mcp/tabellion/internal/store/blob"
)

// TestPowerCutsFindWeakness holds the test of power cuts against folders that are built wrong.
func TestPowerCutsFindWeakness(t *testing.T) {
	for _, w := range []blob.Weakness{blob.NoFolderSync, blob.LateSync} {
		t.Run(string(w), func(t *testing.T) {
			t.Setenv("TABELLION_WEAKEN", string(w))
			findLoss(t, string(w), blob.FolderOptions{})
		})
	}
}
