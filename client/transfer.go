package client

import (
	"context"
	"errors"
	"io"
	"net/http"
	"regexp"
	"time"
)

// Progress hears how far a transfer is, in bytes. done never goes down, also when the transfer begins again, and is
// total in the last call only, when everything was accepted or verified. It is called by one goroutine at a time, and
// the transfer waits for it.
type Progress func(done, total int64)

// meter calls a Progress.
type meter struct {
	fn          Progress // nil: nobody listens
	high, total int64
}

// at reports that done bytes have passed in this attempt.
func (m *meter) at(done int64) {
	if m.fn != nil && done > m.high && done < m.total {
		m.high = done
		m.fn(done, m.total)
	}
}

// finish reports the end.
func (m *meter) finish() {
	if m.fn != nil {
		m.fn(m.total, m.total)
	}
}

// identifier is the form of namespaces and ids (persistence.v1, section 3.1). What has another form is no segment of a
// path, and is not sent.
var identifier = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$`)

// transferURL gives the address of a route.
func (c *Client) transferURL(op, route, namespace, id string) (string, error) {
	switch {
	case c.transfer == nil:
		return "", local(op, UnsupportedFormat, "no transfer origin is configured: set Options.Transfer")
	case !identifier.MatchString(namespace) || !identifier.MatchString(id):
		return "", local(op, InvalidRequest, "namespace and id are 1 to 128 characters of A-Z a-z 0-9 . _ - and do not begin with . or -")
	}
	return c.transfer.JoinPath(route, namespace, id).String(), nil
}

// errStalled: a transfer stood still for too long.
var errStalled = errors.New("no byte moved for too long")

// watch breaks off a transfer that stands still. The caller calls moved for every piece, and stop at the end.
type watch struct {
	after  time.Duration
	timer  *time.Timer
	cancel context.CancelCauseFunc
}

// newWatch starts a watch, and gives the context that it cancels.
func newWatch(ctx context.Context, after time.Duration) (context.Context, *watch) {
	ctx, cancel := context.WithCancelCause(ctx)
	return ctx, &watch{after, time.AfterFunc(after, func() { cancel(errStalled) }), cancel}
}

// moved begins the time anew.
func (w *watch) moved() { w.timer.Reset(w.after) }

// stop ends the watch.
func (w *watch) stop() {
	w.timer.Stop()
	w.cancel(nil)
}

// broken is the error of a transfer whose connection ended. The cause is the stall when that was the reason.
func broken(ctx context.Context, err error) *Error {
	if cause := context.Cause(ctx); errors.Is(cause, errStalled) {
		err = cause
	}
	return &Error{Message: "the connection ended before the transfer did", Cause: err}
}

// refusal reads the error in an HTTP answer of a transfer route.
func refusal(res *http.Response) *Error {
	body, _ := io.ReadAll(io.LimitReader(res.Body, maxErrorBody)) // a body that ends early has no code, and the status counts
	return fromStatus(res, body)
}
