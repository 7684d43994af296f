package control

import (
	"testing"
	"time"
)

// TestPacer: each tick gives the newest progress once; without news, and after stop, nothing is written.
func TestPacer(t *testing.T) {
	tick, wrote := make(chan time.Time), make(chan wireProgress, 100)
	p := &pacer{write: func(w wireProgress) bool { wrote <- w; return true }}
	stop := p.start(tick)
	for i := range 1000 {
		p.note(float64(i), 1000, "rows")
	}
	tick <- time.Time{}
	if got := (<-wrote).Done; got != 999 {
		t.Errorf("first %v, want the newest, 999", got)
	}
	tick <- time.Time{} // without news
	tick <- time.Time{}
	p.note(1000, 1000, "rows")
	tick <- time.Time{}
	if got := (<-wrote).Done; got != 1000 {
		t.Errorf("then %v, want 1000", got)
	}
	p.note(1001, 1000, "rows")
	stop()
	close(wrote)
	for w := range wrote {
		t.Errorf("%v is written without a tick", w)
	}
}

// TestPacerGivesUp: when nobody reads any more the pacer ends by itself, and stop does not hang.
func TestPacerGivesUp(t *testing.T) {
	tick := make(chan time.Time, 2)
	p := &pacer{write: func(wireProgress) bool { return false }}
	p.note(1, 2, "rows")
	stop := p.start(tick)
	tick <- time.Time{}
	stop()
}
