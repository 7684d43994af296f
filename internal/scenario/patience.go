package scenario

import (
	"context"
	"net/http"
	"strconv"
	"time"
)

// Patience bounds how long a run goes on asking a server that refuses a request for now, because of too many calls or
// too much load. What is refused so did not happen, so the same request is sent again after the time that the server
// names. When the bounds are reached, the refusal is the answer. The zero value repeats nothing.
type Patience struct {
	Repeats int           // of one request
	Longest time.Duration // waited for one request, all its repeats together
	// Sleep waits, and returns early with an error when ctx ends. Nil: the system's clock.
	Sleep func(ctx context.Context, d time.Duration) error
}

// Bounds of a single wait. unnamedWait is for a server that names no time. Each repeat waits at least waitStep more than
// the one before: many callers that are told the same short time would else use up their repeats on each other.
const (
	unnamedWait = time.Second
	waitStep    = 10 * time.Millisecond
)

// Waits are the waits for one request.
type Waits struct {
	patience Patience
	repeats  int
	spent    time.Duration
}

// Start begins to count for a request.
func (p Patience) Start() *Waits { return &Waits{patience: p} }

// Again waits as long as the server asks, and tells whether to send the request again: false when the bounds are
// reached, or ctx ends. asked is 0 when the server names no time.
func (w *Waits) Again(ctx context.Context, asked time.Duration) bool {
	if asked <= 0 {
		asked = unnamedWait
	}
	asked = max(asked, time.Duration(w.repeats+1)*waitStep)
	if w.repeats >= w.patience.Repeats || w.spent+asked > w.patience.Longest {
		return false
	}
	w.repeats++
	w.spent += asked
	if w.patience.Sleep != nil {
		return w.patience.Sleep(ctx, asked) == nil
	}
	timer := time.NewTimer(asked)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// RetryAfter reads the value of a header Retry-After, seconds or a date. 0 is a time that has come, none, or one that
// cannot be read.
func RetryAfter(value string) time.Duration {
	if n, err := strconv.ParseUint(value, 10, 31); err == nil {
		return time.Duration(n) * time.Second
	}
	if at, err := http.ParseTime(value); err == nil {
		return max(time.Until(at), 0)
	}
	return 0
}

// later tells of an answer on a transfer route that it refuses for now, and how long the server asks to wait: 429, 503
// with Retry-After, and busy with Retry-After. A busy without it waits for something that the scenario itself does.
func (r HTTPResponse) later() (asked time.Duration, ok bool) {
	value, named := r.Headers["retry-after"]
	switch r.Status {
	case http.StatusTooManyRequests:
		return RetryAfter(value), true
	case http.StatusServiceUnavailable:
		return RetryAfter(value), named
	case http.StatusInternalServerError:
		v, err := decode(r.Body)
		if err != nil {
			return 0, false
		}
		code, _ := at(v, "/error/code")
		return RetryAfter(value), named && code == "busy"
	}
	return 0, false
}
