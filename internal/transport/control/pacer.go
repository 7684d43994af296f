package control

import (
	"sync/atomic"
	"time"
)

// progressEvery is the pause between lines of progress: ten a second.
const progressEvery = 100 * time.Millisecond

// pacer hands progress on, the newest at each tick, so that an operation that tells of each row neither floods a slow
// reader nor waits for it.
type pacer struct {
	latest atomic.Pointer[wireProgress]
	write  func(wireProgress) bool // false: nobody reads any more
}

// note keeps how far the operation is. It never blocks.
func (p *pacer) note(done, total float64, note string) {
	p.latest.Store(&wireProgress{done, total, note})
}

// start writes at each tick what was noted since the tick before. stop ends that, and returns when nothing more is
// written.
func (p *pacer) start(tick <-chan time.Time) (stop func()) {
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-tick:
				if w := p.latest.Swap(nil); w != nil && !p.write(*w) {
					return
				}
			case <-end:
				return
			}
		}
	}()
	return func() {
		close(end)
		<-ended
	}
}
