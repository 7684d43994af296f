//go:build unix

package injection

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/tabellion-mcp/tabellion/internal/modelaccess/site"
)

// leaks are words that only a driver, a database or a stack would say (S57). Words that the caller sent himself do not
// count.
var leaks = regexp.MustCompile(`(?i)sqlstate|syntax error|no such (table|column|function|module)|unrecognized token|near "|\bpq:|\bpgx|\bpgconn|sqlite|postgres|logic error|malformed|prepared statement|relation "[^"]*" does not exist|column "[^"]*"|operator does not exist|invalid input syntax|out of range for type|SELECT |INSERT |goroutine|\.go:\d|panic|/tmp/|/usr/|127\.0\.0\.1|localhost|tabellion-pg`)

// failures are answers that no input may bring about.
var failures = regexp.MustCompile(`ERR_INTERNAL|ERR_SOURCE|ERR_UNKNOWN:|-32603|"internal"|store_unavailable`)

// judge holds one answer against what holds for all.
func judge(a site.Answer, input string) (problem string) {
	own := strings.ToLower(input)
	for _, hit := range leaks.FindAllString(a.Said, -1) {
		if !strings.Contains(own, strings.ToLower(strings.TrimSpace(hit))) {
			return "the answer holds " + hit
		}
	}
	if !a.OK && failures.MatchString(a.Code+" "+a.Said) && !failures.MatchString(input) {
		return "a failure instead of a refusal"
	}
	if !a.OK && (a.Code == "" || a.Message == "") {
		return "a refusal without words"
	}
	if !a.OK && len(a.Said) > 4000 {
		return "a refusal that repeats its input"
	}
	return ""
}

// rowsOf is how many rows an answer holds.
func rowsOf(a site.Answer) int {
	if r := a.Value.Get("row"); !r.IsAbsent() && r.Len() > 0 {
		return 1
	}
	return a.Value.Get("rows").Len()
}

// TestCorpus holds the size and the kinds of the corpus.
func TestCorpus(t *testing.T) {
	all := Corpus()
	if len(all) < 300 {
		t.Errorf("%d strings, want 300 or more", len(all))
	}
	if n := len(sample()); n < 300 && !testing.Short() {
		t.Errorf("%d strings go into each position, want 300 or more", n)
	}
	t.Logf("%d strings, %d positions for reading, %d for writing", len(all), len(reads()), len(writes()))
	for _, must := range []string{"'", `"`, "--", "/*", "$$", `\`, "\x00", "’", "%", "$where", "Ignore all", "../", "%n"} {
		found := false
		for _, s := range all {
			found = found || strings.Contains(s, must)
		}
		if !found {
			t.Errorf("no string holds %q", must)
		}
	}
}

// sample is what goes into each position: 300 strings and more of every kind, all of them with FULL=1, and every seventh
// in a quick run.
func sample() []string {
	all, of, take := Corpus(), 17, 10
	switch {
	case os.Getenv("FULL") != "":
		return all
	case testing.Short():
		of, take = 7, 1
	}
	var out []string
	for i, s := range all {
		if i%of < take {
			out = append(out, s)
		}
	}
	return out
}

// TestReads puts every string into every position of reading calls, over connections that could write. All tables and the
// schema stay as they are; answers are refusals or hold no row that the string did not name (M01, S32, S33, S57).
func TestReads(t *testing.T) {
	t.Parallel()
	site.Each(t, func(t *testing.T, p *site.Place) {
		t.Parallel()
		w := newWorld(t, p)
		before := p.Checksum(t)
		calls, refused, empty := 0, 0, 0
		for _, pos := range reads() {
			wrong := 0
			complain := func(s, problem string, a site.Answer) {
				if wrong++; wrong <= 3 {
					t.Errorf("%s, %.120q: %s\n  %.400s", pos.name, s, problem, a.Said)
				}
			}
			try := func(s, args string) {
				a := w.surface(pos.tool).Call(t, clerk, pos.tool, args)
				calls++
				if problem := judge(a, s); problem != "" {
					complain(s, problem, a)
				}
				switch {
				case !a.OK:
					refused++
				case rowsOf(a) == 0:
					empty++
				}
				if a.OK && pos.want == refusal && !pos.fine(s) {
					complain(s, "accepted", a)
				}
				if a.OK && pos.want == nothing && rowsOf(a) > 0 && !pos.fine(s) && !strings.Contains(a.Said, strings.TrimSpace(s)) {
					complain(s, "rows that the value does not name", a)
				}
			}
			for _, s := range sample() {
				try(s, pos.args(s))
			}
			if pos.want == refusal && strings.HasPrefix(pos.name, "gql") {
				continue
			}
			for _, raw := range rawValues() {
				args := pos.args("\x00raw")
				if !strings.Contains(args, `:"\u0000raw"`) && !strings.Contains(args, `["\u0000raw"`) || strings.Contains(args, `"\u0000raw":`) {
					break // a name, or inside a text
				}
				a := w.surface(pos.tool).Call(t, clerk, pos.tool, strings.ReplaceAll(args, `"\u0000raw"`, raw))
				calls++
				if problem := judge(a, raw); problem != "" {
					complain(raw, problem, a)
				}
			}
		}
		if p.Checksum(t) != before {
			t.Error("something was changed by reading calls")
		}
		checkStatements(t, w)
		checkLog(t, w)
		t.Logf("%d calls: %d refused, %d without rows", calls, refused, empty)
	})
}

// checkLog looks for panics and for driver errors in the operator's log: no input may reach the database in a form that it
// refuses.
func checkLog(t *testing.T, w *world) {
	t.Helper()
	for _, s := range []*site.Site{w.perModel, w.generic} {
		for line := range strings.SplitSeq(s.Log.String(), "\n") {
			if strings.Contains(line, "panic") || strings.Contains(line, "a source failed") {
				t.Errorf("in the log: %.400s", line)
			}
		}
	}
}

// checkStatements lexes everything that was sent to the database.
func checkStatements(t *testing.T, w *world) {
	t.Helper()
	sent := w.Sent()
	if len(sent) < 20 {
		t.Errorf("only %d distinct statements were seen", len(sent))
	}
	names, wrong := Names(w.perModel.Registry.List()), 0
	for _, s := range sent {
		if problem := CheckStatement(s.Text, s.Args, names); problem != "" {
			if wrong++; wrong <= 5 {
				t.Errorf("%s\n  %s", problem, s.Text)
			}
		}
	}
	t.Logf("%d distinct statements", len(sent))
}
