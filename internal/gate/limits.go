package gate

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/tabellion-mcp/tabellion/fault"
	"github.com/tabellion-mcp/tabellion/internal/clock"
)

// sweepEvery is how often idle limiters are dropped, and idleAfter how long one must have been idle: long enough
// that its bucket is full again, so that dropping it gives nobody anything.
const (
	sweepEvery = time.Minute
	idleAfter  = 5 * time.Minute
)

// rates counts calls a second, one bucket a principal. Buckets run on monotonic time.
type rates struct {
	limit rate.Limit
	burst int

	mu      sync.Mutex
	buckets map[string]*bucket
	swept   time.Time
}

// bucket is one principal's limiter.
type bucket struct {
	*rate.Limiter
	used time.Time
}

// newRates makes the buckets; a rate of 0 limits nothing.
func newRates(l Limits, _ clock.Clock) *rates {
	if l.Rate <= 0 {
		return nil
	}
	return &rates{limit: rate.Limit(l.Rate), burst: max(1, l.Burst), buckets: map[string]*bucket{}, swept: time.Now()}
}

// take counts one call of key; wait is how long to wait before a retry can succeed, 0 when the call may go on.
func (r *rates) take(key string) (wait time.Duration) {
	if r == nil {
		return 0
	}
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sweep(now)
	b := r.buckets[key]
	if b == nil {
		b = &bucket{Limiter: rate.NewLimiter(r.limit, r.burst)}
		r.buckets[key] = b
	}
	b.used = now
	if b.AllowN(now, 1) {
		return 0
	}
	res := b.ReserveN(now, 1)
	wait = res.DelayFrom(now)
	res.CancelAt(now)
	return max(wait, time.Millisecond)
}

// sweep drops idle buckets. The caller holds mu.
func (r *rates) sweep(now time.Time) {
	if now.Sub(r.swept) < sweepEvery {
		return
	}
	r.swept = now
	for key, b := range r.buckets {
		if now.Sub(b.used) > idleAfter {
			delete(r.buckets, key)
		}
	}
}

// places bounds the calls under way, of one principal and in all.
type places struct {
	each, all int
	wait      time.Duration

	mu    sync.Mutex
	total int
	by    map[string]int
	freed chan struct{} // closed and replaced whenever a place is freed while somebody waits
	waits int
}

// newPlaces makes the places.
func newPlaces(l Limits) *places {
	return &places{each: l.Concurrency, all: l.TotalConcurrency, wait: l.Wait, by: map[string]int{}, freed: make(chan struct{})}
}

// take waits for a place for at most the configured time. ok is false when none came free.
func (p *places) take(ctx context.Context, key string) (release func(), ok bool) {
	if ch, ok := p.try(key); ok {
		return func() { p.free(key) }, true
	} else if p.wait > 0 {
		return p.takeLate(ctx, key, ch)
	}
	return nil, false
}

// takeLate tries again whenever a place is freed.
func (p *places) takeLate(ctx context.Context, key string, freed <-chan struct{}) (func(), bool) {
	timer := time.NewTimer(p.wait)
	defer timer.Stop()
	p.mu.Lock()
	p.waits++
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		p.waits--
		p.mu.Unlock()
	}()
	for {
		select {
		case <-freed:
		case <-timer.C:
			return nil, false
		case <-ctx.Done():
			return nil, false
		}
		var ok bool
		if freed, ok = p.try(key); ok {
			return func() { p.free(key) }, true
		}
	}
}

// try takes a place if there is one; otherwise it gives the channel that tells of the next freed one.
func (p *places) try(key string) (<-chan struct{}, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if (p.all > 0 && p.total >= p.all) || (p.each > 0 && p.by[key] >= p.each) {
		return p.freed, false
	}
	p.total++
	p.by[key]++
	return nil, true
}

// free gives a place back.
func (p *places) free(key string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.total--
	if p.by[key]--; p.by[key] == 0 {
		delete(p.by, key)
	}
	if p.waits > 0 {
		close(p.freed)
		p.freed = make(chan struct{})
	}
}

// opPlaces bounds the calls under way of one operation (Bounds.Concurrency).
type opPlaces struct{ m sync.Map }

// take counts a call of name; false when bound calls run already.
func (o *opPlaces) take(name string, bound int) (release func(), ok bool) {
	if bound <= 0 {
		return func() {}, true
	}
	v, _ := o.m.LoadOrStore(name, new(atomic.Int64))
	n := v.(*atomic.Int64)
	if n.Add(1) > int64(bound) {
		n.Add(-1)
		return nil, false
	}
	return func() { n.Add(-1) }, true
}

// failures counts failed authentications by address: after the limit within a minute the address is refused for a
// minute.
type failures struct {
	limit int
	clock clock.Clock

	mu sync.Mutex
	by map[string]*failure
}

// failure is the record of one address.
type failure struct {
	since   time.Time // start of the minute that is counted
	count   int
	blocked time.Time // refused until
	told    time.Time // last audit entry
	quiet   int       // failures since then
}

// maxAddresses bounds the memory of failures; beyond it the record is begun anew, which is logged as a refusal
// anyway.
const maxAddresses = 10_000

// newFailures makes the counter; a limit of 0 refuses nobody.
func newFailures(limit int, c clock.Clock) *failures {
	return &failures{limit: limit, clock: c, by: map[string]*failure{}}
}

// blocked tells how long addr is still refused; 0 when it is not.
func (f *failures) blocked(addr string) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r := f.by[addr]; r != nil {
		return max(0, r.blocked.Sub(f.clock.Now()))
	}
	return 0
}

// add counts a failure; counts is false for one that does not bring a refusal nearer: a request without any
// credential tries no key. tell is true when an audit entry is due (one an address and minute); quiet is how many
// failures had none since the last.
func (f *failures) add(addr string, counts bool) (tell bool, quiet int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.clock.Now()
	if len(f.by) >= maxAddresses {
		clear(f.by)
	}
	r := f.by[addr]
	if r == nil {
		r = &failure{since: now}
		f.by[addr] = r
	}
	if now.Sub(r.since) >= time.Minute {
		r.since, r.count = now, 0
	}
	if counts {
		r.count++
	}
	if f.limit > 0 && r.count >= f.limit {
		r.blocked = now.Add(time.Minute)
	}
	if now.Sub(r.told) < time.Minute {
		r.quiet++
		return false, 0
	}
	quiet, r.quiet, r.told = r.quiet, 0, now
	return true, quiet
}

// overloaded is the refusal when no place came free.
func overloaded() *fault.Error {
	return fault.New(fault.Overloaded, "too many calls are under way; nothing was done, retry shortly").After(100 * time.Millisecond)
}
