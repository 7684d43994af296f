package memory_test

import (
	"testing"

	"github.com/tabellion-mcp/tabellion/internal/store/memory"
	"github.com/tabellion-mcp/tabellion/persistence"
	"github.com/tabellion-mcp/tabellion/storetest"
)

func TestStore(t *testing.T) {
	storetest.Run(t, func(*testing.T) persistence.Store { return memory.New(nil) })
}
