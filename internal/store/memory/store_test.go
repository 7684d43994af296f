package memory_test

import (
	"testing"

	"github.com/tabellion-mcp/tabellion/internal/clock"
	"github.com/tabellion-mcp/tabellion/internal/store/memory"
	"github.com/tabellion-mcp/tabellion/internal/store/storecheck"
	"github.com/tabellion-mcp/tabellion/persistence"
	"github.com/tabellion-mcp/tabellion/storetest"
)

func TestStore(t *testing.T) {
	storetest.Run(t, func(*testing.T) persistence.Store { return memory.New(nil) })
}

func TestOthers(t *testing.T) {
	storecheck.Run(t, storecheck.Suite{Open: func(_ *testing.T, c clock.Clock) storecheck.Store { return memory.New(c) }})
}
