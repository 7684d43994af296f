package scenario_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tabellion-mcp/tabellion/internal/scenario"
)

// noted is a patience that notes its waits and does not sleep.
func noted(waits *[]time.Duration) scenario.Patience {
	return scenario.Patience{Repeats: 3, Longest: 10 * time.Second, Sleep: func(ctx context.Context, d time.Duration) error {
		*waits = append(*waits, d)
		return ctx.Err()
	}}
}

// TestPatience: each bound ends the waiting, and so does the context.
func TestPatience(t *testing.T) {
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for _, tt := range []struct {
		name  string
		ctx   context.Context
		asked time.Duration
		want  []time.Duration
		sent  int // repeats allowed
	}{
		{"repeats", t.Context(), time.Second, []time.Duration{time.Second, time.Second, time.Second}, 3},
		{"longest", t.Context(), 4 * time.Second, []time.Duration{4 * time.Second, 4 * time.Second}, 2},
		{"too long at once", t.Context(), 11 * time.Second, nil, 0},
		{"no time named", t.Context(), 0, []time.Duration{time.Second, time.Second, time.Second}, 3},
		{"short", t.Context(), time.Millisecond, []time.Duration{10 * time.Millisecond, 20 * time.Millisecond, 30 * time.Millisecond}, 3},
		{"the context ends", gone, time.Second, []time.Duration{time.Second}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got []time.Duration
			sent := 0
			for w := noted(&got).Start(); w.Again(tt.ctx, tt.asked); sent++ {
			}
			if sent != tt.sent || !slices.Equal(got, tt.want) {
				t.Errorf("%d repeats after %v, want %d after %v", sent, got, tt.sent, tt.want)
			}
		})
	}
	if none := (scenario.Patience{}).Start(); none.Again(t.Context(), time.Millisecond) {
		t.Error("no patience waits")
	}
}

// TestRetryAfter reads both forms of the header.
func TestRetryAfter(t *testing.T) {
	for text, want := range map[string]time.Duration{"2": 2 * time.Second, "0": 0, "-1": 0, "": 0, "soon": 0, "Mon, 02 Jan 2006 15:04:05 GMT": 0} {
		if got := scenario.RetryAfter(text); got != want {
			t.Errorf("%q: got %v, want %v", text, got, want)
		}
	}
	date := time.Now().Add(time.Hour).UTC().Format(http.TimeFormat)
	if got := scenario.RetryAfter(date); got < 50*time.Minute || got > time.Hour {
		t.Errorf("in an hour: got %v", got)
	}
}

// turns is a target that answers transfers and calls in turn; the last answer stays.
type turns struct {
	http  []scenario.HTTPResponse
	tools []scenario.Answer
	calls []string
}

// Call implements scenario.Target.
func (s *turns) Call(_ context.Context, as, tool string, args []byte) (scenario.Answer, error) {
	s.calls = append(s.calls, fmt.Sprintf("%s %s %s", as, tool, args))
	if len(s.tools) == 0 {
		return scenario.Answer{}, errors.New("no answer")
	}
	a := s.tools[0]
	s.tools = s.tools[1:]
	return a, nil
}

// Read implements scenario.Target.
func (s *turns) Read(context.Context, string, string) (scenario.Answer, error) {
	return scenario.Answer{}, errors.New("not here")
}

// HTTP implements scenario.Target.
func (s *turns) HTTP(_ context.Context, _ string, req scenario.HTTPRequest) (scenario.HTTPResponse, error) {
	s.calls = append(s.calls, req.Method)
	res := s.http[0]
	if len(s.http) > 1 {
		s.http = s.http[1:]
	}
	if req.BreakAfter != nil && res.Status/100 != 2 {
		res.Broken = true
	}
	return res, nil
}

// refused is an answer of a transfer route; seconds "" is no Retry-After.
func refused(status int, code, seconds string) scenario.HTTPResponse {
	r := scenario.HTTPResponse{Status: status, Headers: map[string]string{"content-type": "application/json"}}
	if r.Body = []byte(fmt.Sprintf(`{"error":{"code":%q,"message":"words"}}`, code)); seconds != "" {
		r.Headers["retry-after"] = seconds
	}
	return r
}

// TestTransferLater: a transfer that is refused for now is repeated, unless the scenario expects that, or the server
// does not say that it passes.
func TestTransferLater(t *testing.T) {
	done := scenario.HTTPResponse{Status: 204}
	const step, cut = `"method":"PUT","path":"/","body":{"text":"abc"}`, `"method":"PUT","path":"/","body":{"text":"abc"},"breakAfter":1`
	for _, tt := range []struct {
		name, step, expect string
		answers            []scenario.HTTPResponse
		sent               int
		bad                string
	}{
		{"busy with a time", step, `{"status":204}`, []scenario.HTTPResponse{refused(500, "busy", "2"), done}, 2, ""},
		{"too many requests", step, `{"status":204}`, []scenario.HTTPResponse{refused(429, "", ""), done}, 2, ""},
		{"unavailable with a time", step, `{"status":204}`, []scenario.HTTPResponse{refused(503, "", "2"), done}, 2, ""},
		{"unavailable", step, `{"status":204}`, []scenario.HTTPResponse{refused(503, "", ""), done}, 1, "status is 503"},
		{"busy without a time", step, `{"status":204}`, []scenario.HTTPResponse{refused(500, "busy", ""), done}, 1, "status is 500"},
		{"another failure with a time", step, `{"status":204}`, []scenario.HTTPResponse{refused(500, "store_unavailable", "2"), done}, 1, "status is 500"},
		{"busy is expected", step, `{"status":500,"error":"busy"}`, []scenario.HTTPResponse{refused(500, "busy", "2"), done}, 1, ""},
		{"busy for ever", step, `{"status":204}`, []scenario.HTTPResponse{refused(500, "busy", "2")}, 4, "status is 500"},
		{"a cut request that was not taken", cut, `{"broken":true}`, []scenario.HTTPResponse{refused(500, "busy", "2"), refused(400, "transfer_incomplete", "")}, 2, ""},
		{"a cut request that was taken", cut, `{"broken":true}`, []scenario.HTTPResponse{refused(400, "transfer_incomplete", ""), done}, 1, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var waits []time.Duration
			target := &turns{http: tt.answers}
			r := scenario.Runner{Target: target, Patience: noted(&waits)}
			check(t, r.Run(t.Context(), parse(t, `[{"http":{`+tt.step+`},"expect":`+tt.expect+`}]`)), tt.bad)
			if len(target.calls) != tt.sent || len(waits) != tt.sent-1 {
				t.Errorf("sent %d times after %v, want %d", len(target.calls), waits, tt.sent)
			}
		})
	}
}

// result is a successful answer of a tool.
func result(t *testing.T, text string) scenario.Answer {
	t.Helper()
	a := scenario.Answer{Text: text}
	if err := json.Unmarshal([]byte(text), &a.Structured); err != nil {
		t.Fatal(err)
	}
	return a
}

// failure is a business failure of a tool.
func failure(t *testing.T, code string) scenario.Answer {
	a := result(t, fmt.Sprintf(`{"error":{"code":%q,"message":"words"}}`, code))
	a.IsError = true
	return a
}

// TestAbortUploads: every upload of the scenario is aborted once, by the caller that began it, wherever in the scenario
// that was, and also when the scenario fails.
func TestAbortUploads(t *testing.T) {
	begun := func(n int) scenario.Answer {
		return result(t, fmt.Sprintf(`{"namespace":"ns","artifactId":"a%d","uploadId":"u%d"}`, n, n))
	}
	begin := `{"tool":"persistence.beginArtifact","as":"alice","args":{},"expect":{"structuredContent":{}}}`
	dropped := `{"tool":"persistence.beginArtifact","as":"bob","args":{},"dropResponse":true}`
	steps := `[` + begin + `,` + begin + `,{"repeat":1,"step":` + dropped + `},{"parallel":[` + begin + `],"expect":{"tally":{"ok":1}}},
		{"tool":"persistence.getUpload","as":"alice","args":{},"expect":{"structuredContent":{}}},
		{"tool":"persistence.beginArtifact","as":"alice","args":{},"expect":{"error":"invalid_request"}}]`
	target := &turns{tools: []scenario.Answer{
		begun(1), begun(1), begun(2), begun(3), begun(9), begun(4), // the last one should have been refused
		result(t, `{"ok":true}`), failure(t, "not_found"), failure(t, "policy_denied"), {RPC: &scenario.RPCError{Code: -32603}},
	}}
	r := scenario.Runner{Target: target}
	check(t, r.Run(t.Context(), parse(t, steps)), "want error invalid_request")
	target.calls = nil
	err := r.AbortUploads(t.Context())
	var got []string
	for _, c := range target.calls {
		var in struct{ Namespace, UploadID, IdempotencyKey string }
		words := strings.SplitN(c, " ", 3)
		if json.Unmarshal([]byte(words[2]), &in); in.IdempotencyKey == "" {
			t.Errorf("no idempotency key: %s", c)
		}
		got = append(got, strings.Join([]string{words[0], words[1], in.Namespace, in.UploadID}, " "))
	}
	want := []string{}
	for _, who := range []string{"alice u1", "bob u2", "alice u3", "alice u4"} {
		name, upload, _ := strings.Cut(who, " ")
		want = append(want, name+" persistence.abortArtifact ns "+upload)
	}
	if !slices.Equal(got, want) {
		t.Errorf("called\n%v\nwant\n%v", got, want)
	}
	if text := fmt.Sprint(err); !strings.Contains(text, "u3 as alice: want error not_found") || !strings.Contains(text, "u4") || strings.Contains(text, "u1") || strings.Contains(text, "u2") {
		t.Errorf("got %v", err)
	}
	if err := r.AbortUploads(t.Context()); err != nil || len(target.calls) != 4 {
		t.Errorf("a second time: %v, %d calls", err, len(target.calls))
	}
}
