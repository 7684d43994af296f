// Package clock gives the time, so that tests can move it.
package clock

import (
	"sync"
	"time"
)

// Clock tells the wall time. Implementations are safe for concurrent use. Timeouts use monotonic time, never a
// Clock: a jump of the wall clock must not end or prolong them.
type Clock interface {
	Now() time.Time
}

// System is the machine's clock.
type System struct{}

// Now is the present time.
func (System) Now() time.Time { return time.Now() }

// Manual is a clock that moves only when told to. Make one with NewManual.
type Manual struct {
	mu  sync.Mutex
	now time.Time
}

// NewManual is a clock that stands at t.
func NewManual(t time.Time) *Manual { return &Manual{now: t} }

// Now is the time the clock stands at.
func (m *Manual) Now() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.now
}

// Advance moves the clock by d, which may be negative.
func (m *Manual) Advance(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now = m.now.Add(d)
}
