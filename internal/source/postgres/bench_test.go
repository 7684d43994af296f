package postgres_test

import (
	"testing"

	"github.com/tabellion-mcp/tabellion/internal/source/sourcetest"
)

// BenchmarkSource measures plans as they are, without planning them.
func BenchmarkSource(b *testing.B) { sourcetest.Bench(b, newPlace) }
