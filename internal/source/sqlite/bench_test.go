package sqlite_test

import (
	"path/filepath"
	"testing"

	"github.com/tabellion-mcp/tabellion/internal/source/sourcetest"
)

// BenchmarkSource measures plans as they are, without planning them.
func BenchmarkSource(b *testing.B) {
	sourcetest.Bench(b, func(t testing.TB) sourcetest.Place { return placeAt(t, filepath.Join(t.TempDir(), "bench.db")) })
}
