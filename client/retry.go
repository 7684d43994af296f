package client

import (
	"context"
	"math/rand/v2"
	"time"
)

// Retry bounds how often and how quickly a request is repeated. The zero value is five attempts, after about 0.1, 0.2,
// 0.4 and 0.8 seconds.
type Retry struct {
	// Attempts is how often a request is sent at most. 0 is 5, 1 is once.
	Attempts int
	// First is the longest delay before the second attempt; it doubles for each further one. 0 is 100 ms. The delay
	// itself is a random part, between half and all of it, so that many clients do not come back at once.
	First time.Duration
	// Longest bounds a delay, also one that the server asks for. 0 is 5 s.
	Longest time.Duration
}

// defaults fills in what was left out.
func (r *Retry) defaults() {
	if r.Attempts <= 0 {
		r.Attempts = 5
	}
	if r.First <= 0 {
		r.First = 100 * time.Millisecond
	}
	if r.Longest <= 0 {
		r.Longest = 5 * time.Second
	}
}

// delay is how long to wait after attempt n, counted from 1, that failed with e.
func (r Retry) delay(n int, e *Error) time.Duration {
	d := r.First
	for i := 1; i < n && d < r.Longest; i++ {
		d *= 2
	}
	d = min(d, r.Longest)
	d -= rand.N(d/2 + 1)
	return max(d, min(e.RetryAfter, r.Longest))
}

// sleep waits for d or for the end of ctx.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// repeat tries until it succeeds, fails in a way that another attempt cannot mend, or the attempts or ctx are at their
// end. key is the idempotency key of a mutation, empty for what has no effect.
func (c *Client) repeat(ctx context.Context, op, key string, try func(context.Context) *Error) error {
	if err := ctx.Err(); err != nil {
		return &Error{Op: op, Key: key, Message: "nothing was sent", Cause: err, local: true}
	}
	unknown := false
	for n := 1; ; n++ {
		e := try(ctx)
		if e == nil {
			return nil
		}
		unknown = key != "" && (unknown || e.open()) && !e.settles()
		if e.Retryable() && n < c.opts.Retry.Attempts && c.opts.Sleep(ctx, c.opts.Retry.delay(n, e)) == nil && ctx.Err() == nil {
			continue
		}
		e.Op, e.Key, e.Attempts, e.Unknown = op, key, n, unknown
		e.ended(ctx)
		return e
	}
}
