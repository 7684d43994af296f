package maintain

// It looks inside: the table of kinds is nobody's but this package's.

import (
	"testing"

	"github.com/tabellion-mcp/tabellion/internal/store/sqlite"
)

// TestKinds: every flaw of the database has a row, and every row says what to do.
func TestKinds(t *testing.T) {
	for _, k := range sqlite.FlawKinds() {
		if !kinds[string(k)].damage {
			t.Errorf("%s is not among the kinds, or is no damage", k)
		}
	}
	for k, row := range kinds {
		if row.remedy == "" {
			t.Errorf("%s has no remedy", k)
		}
	}
}
