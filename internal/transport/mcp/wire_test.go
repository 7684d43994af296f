package mcp_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/tabellion-mcp/tabellion/fault"
)

// update rewrites the golden file; a run without it compares.
var update = flag.Bool("update", false, "rewrite testdata/wire.golden")

// TestFaultsOnTheWire holds the table of errors as they leave (middle, D5): every code, in every slot's form, over each
// transport and era. What is sent is what fault.Form says, status included, and the golden file shows it.
func TestFaultsOnTheWire(t *testing.T) {
	r := newRig(t)
	older := r.open(t, "/mcp", keyAna, "2025-11-25")
	now, then := r.dial(t, t.Context()), r.dial(t, t.Context())
	then.initialize()
	var table strings.Builder
	for _, code := range fault.Codes {
		for _, tool := range []string{"persistence.fail", "plain_fail", "models_fail"} {
			arguments := fmt.Sprintf(`{"code":%q}`, code)
			dialect := fault.PersistenceDialect
			switch tool {
			case "plain_fail":
				dialect = fault.PlainDialect
			case "models_fail":
				dialect = fault.ModelsDialect
			}
			frame := callBody("1", tool, arguments)
			a := r.send(t, "POST", "/mcp", frame, stateless("tools/call", tool))
			b := r.send(t, "POST", "/mcp", olderCall("1", tool, arguments), older)
			now.send(frame)
			then.send(olderCall("1", tool, arguments))
			for _, sent := range []struct {
				transport string
				era       fault.Era
				status    int
				body      string
			}{
				{"http", fault.Stateless, a.status, string(a.body)},
				{"http", fault.Legacy, b.status, last(b)},
				{"stdio", fault.Stateless, 0, now.next()},
				{"stdio", fault.Legacy, 0, then.next()},
			} {
				form := fault.New(code, "as asked").Form(dialect, fault.Tool, sent.era)
				status := "-"
				if sent.transport == "http" {
					status = fmt.Sprint(sent.status)
					// What is no message at all is answered at the door, before there is a call: TestSessionFlaws holds its 400.
					door := sent.era == fault.Legacy && (code == fault.ParseError || code == fault.InvalidMessage)
					if sent.status != form.HTTP && !door {
						t.Errorf("%s %s over http, %s: status %d, the form says %d", code, tool, sent.era, sent.status, form.HTTP)
					}
				}
				row := wireRow(t, sent.body)
				if want := formRow(form); row != want {
					t.Errorf("%s %s over %s, %s: sent %s, the form says %s", code, tool, sent.transport, sent.era, row, want)
				}
				fmt.Fprintf(&table, "%-20s %-16s %-5s %-9s %-3s %s\n", code, tool, sent.transport, sent.era, status, row)
			}
		}
	}
	const golden = "testdata/wire.golden"
	if *update {
		if err := os.WriteFile(golden, []byte(table.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatalf("%v; -update writes it", err)
	}
	if table.String() != string(want) {
		t.Errorf("what is sent differs from %s; -update rewrites it", golden)
	}
}

// last is the last message of an answer of the older era.
func last(p *reply) string {
	if e := events(p.body); len(e) > 0 {
		return e[len(e)-1]
	}
	return string(p.body)
}

// wireRow is the part of an answer that the form decides.
func wireRow(t *testing.T, body string) string {
	t.Helper()
	e := field(t, []byte(body), "/error")
	if e.IsAbsent() {
		return "tool " + string(field(t, []byte(body), "/result/structuredContent").AppendJSON(nil))
	}
	data := ""
	if d := e.Get("data"); !d.IsAbsent() {
		data = " " + string(d.AppendJSON(nil))
	}
	return fmt.Sprintf("rpc %s%s", e.Get("code").Literal(), data)
}

// formRow is wireRow of a form.
func formRow(f fault.Form) string {
	if f.ToolError {
		return "tool " + string(f.Tool)
	}
	data := ""
	if len(f.Data) > 0 {
		data = " " + string(f.Data)
	}
	return fmt.Sprintf("rpc %d%s", f.RPC, data)
}
