package fault_test

import (
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tabellion-mcp/tabellion/fault"
	"github.com/tabellion-mcp/tabellion/internal/canonjson"
)

// update rewrites the golden file: go test ./fault -update
var update = flag.Bool("update", false, "rewrite testdata/forms.golden")

// goldenFile holds the wire form of every code for every dialect, surface and era (middle, D5).
const goldenFile = "testdata/forms.golden"

// The dialects, surfaces and eras that exist.
var (
	dialects = map[string]fault.Dialect{"persistence": fault.PersistenceDialect, "plain": fault.PlainDialect, "models": fault.ModelsDialect}
	surfaces = []fault.Surface{fault.Tool, fault.Resource, fault.Prompt, fault.List, fault.Command, fault.Transfer}
	eras     = []fault.Era{fault.Stateless, fault.Legacy}
)

// row is one line of the golden table.
func row(c fault.Code, dialect string, s fault.Surface, era fault.Era) string {
	f := fault.New(c, "message").After(1500*time.Millisecond).With("detail", "d").Form(dialects[dialect], s, era)
	head := fmt.Sprintf("%-20s %-11s %-8s %-9s  http %d  ", c, dialect, s, era, f.HTTP)
	switch {
	case f.ToolError:
		return head + "tool " + string(f.Tool)
	case s == fault.Transfer:
		return head + "body " + string(f.Tool)
	}
	return fmt.Sprintf("%srpc %d %q %s", head, f.RPC, f.Message, f.Data)
}

// table is the whole golden table.
func table() string {
	var b strings.Builder
	for _, c := range fault.Codes {
		for _, dialect := range []string{"persistence", "plain", "models"} {
			for _, s := range surfaces {
				for _, era := range eras {
					b.WriteString(row(c, dialect, s, era) + "\n")
				}
			}
		}
	}
	return b.String()
}

func TestFormsGolden(t *testing.T) {
	got := table()
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(goldenFile, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(goldenFile)
	if err != nil {
		t.Fatalf("%v; write it with -update", err)
	}
	gotLines, wantLines := strings.Split(got, "\n"), strings.Split(string(want), "\n")
	for i := range max(len(gotLines), len(wantLines)) {
		g, w := "", ""
		if i < len(gotLines) {
			g = gotLines[i]
		}
		if i < len(wantLines) {
			w = wantLines[i]
		}
		if g != w {
			t.Fatalf("line %d of %s:\n got %s\nwant %s", i+1, goldenFile, g, w)
		}
	}
}

// expected is what the specifications say of a code, written by hand: the JSON-RPC code and HTTP status where it is a
// protocol error, and where it has no tool result in the two eras.
type expected struct {
	business          bool // a tool result with isError where there is a tool
	stateless, legacy int  // JSON-RPC codes where it is an RPC error
	http              int  // with an RPC error
	word              string
}

// forms is the table by hand. Sources: security requirements S55a (refusals before the operation), persistence.v1,
// sections 2 and 7 (business codes and resources), MCP 2026-07-28 (header mismatch, capability, version), JSON-RPC 2.0.
var forms = map[fault.Code]expected{
	fault.InvalidRequest:      {true, -32602, -32602, 200, ""},
	fault.NotFound:            {true, -32602, -32002, 200, ""},
	fault.PolicyDenied:        {true, -32001, -32001, 200, ""},
	fault.RevisionConflict:    {true, -32603, -32603, 200, ""},
	fault.IdempotencyConflict: {true, -32603, -32603, 200, ""},
	fault.QuotaExceeded:       {true, -32603, -32603, 200, ""},
	fault.TransferIncomplete:  {true, -32603, -32603, 200, ""},
	fault.IntegrityError:      {true, -32603, -32603, 200, ""},
	fault.UnsupportedFormat:   {true, -32603, -32603, 200, ""},
	fault.RetentionBlocked:    {true, -32603, -32603, 200, ""},
	fault.Busy:                {true, -32603, -32603, 200, ""},
	fault.StoreUnavailable:    {true, -32603, -32603, 200, ""},
	fault.ProfileBlocked:      {true, -32603, -32603, 200, ""},
	fault.NoContext:           {true, -32603, -32603, 200, ""},
	fault.Unauthenticated:     {true, -32603, -32603, 200, ""},
	fault.InvalidBody:         {true, -32603, -32603, 200, ""},
	fault.PlanError:           {true, -32603, -32603, 200, ""},
	fault.UnauthorizedKey:     {false, -32001, -32001, 401, "UNAUTHORIZED_KEY"},
	fault.RateLimited:         {false, -32010, -32010, 429, "RATE_LIMITED"},
	fault.Overloaded:          {false, -32014, -32014, 503, "OVERLOADED"},
	fault.AuthBackend:         {false, -32013, -32013, 503, "AUTH_BACKEND"},
	fault.ParseError:          {false, -32700, -32700, 400, ""},
	fault.InvalidMessage:      {false, -32600, -32600, 400, ""},
	fault.MethodNotFound:      {false, -32601, -32601, 404, ""},
	fault.InvalidParams:       {false, -32602, -32602, 400, ""},
	fault.UnknownTool:         {false, -32602, -32602, 200, ""},
	fault.UnknownResource:     {false, -32602, -32002, 200, ""},
	fault.UnknownPrompt:       {false, -32602, -32602, 200, ""},
	fault.HeaderMismatch:      {false, -32020, -32020, 400, ""},
	fault.UnsupportedVersion:  {false, -32022, -32022, 400, ""},
	fault.MissingCapability:   {false, -32021, -32021, 400, ""},
	fault.Cancelled:           {false, -32015, -32015, 200, ""},
	fault.Internal:            {false, -32603, -32603, 500, "internal"},
}

func TestFormsByHand(t *testing.T) {
	for _, c := range fault.Codes {
		want, ok := forms[c]
		if !ok {
			t.Errorf("code %s has no row in the table by hand", c)
			continue
		}
		for name, d := range dialects {
			for _, s := range surfaces {
				for _, era := range eras {
					if s == fault.Transfer {
						checkTransfer(t, fmt.Sprintf("%s %s %s %s", c, name, s, era), c, d, era)
						continue
					}
					checkForm(t, fmt.Sprintf("%s %s %s %s", c, name, s, era), c, want, d, s, era)
				}
			}
		}
	}
	if len(forms) != len(fault.Codes) || len(answers) != len(fault.Codes) {
		t.Errorf("%d rows and %d transfer rows for %d codes", len(forms), len(answers), len(fault.Codes))
	}
}

// modelsWords is what the models slot says of a code, by hand (models, sections 22.1, 23.3 and 23.4; security
// requirements, S55a). The codes of other slots' own business never come there.
var modelsWords = map[fault.Code]string{
	fault.InvalidRequest:      `{"code":"invalidParam","message":"words"}`,
	fault.NotFound:            `{"code":"notFound","message":"words"}`,
	fault.PolicyDenied:        `{"code":"permissionDenied","message":"ERR_PERMISSION: words"}`,
	fault.RevisionConflict:    `{"code":"versionConflict","message":"words"}`,
	fault.IdempotencyConflict: `{"code":"idempotencyConflict","message":"words"}`,
	fault.QuotaExceeded:       `{"code":"planError","message":"ERR_LIMIT: words"}`,
	fault.TransferIncomplete:  `{"code":"planError","message":"ERR_INTERNAL: words"}`,
	fault.IntegrityError:      `{"code":"planError","message":"ERR_INTERNAL: words"}`,
	fault.UnsupportedFormat:   `{"code":"planError","message":"ERR_INTERNAL: words"}`,
	fault.RetentionBlocked:    `{"code":"planError","message":"ERR_INTERNAL: words"}`,
	fault.Busy:                `{"code":"planError","message":"ERR_BUSY: words"}`,
	fault.StoreUnavailable:    `{"code":"planError","message":"ERR_SOURCE: words"}`,
	fault.ProfileBlocked:      `{"code":"profileBlocked","message":"ERR_TEXT2QUERY: words"}`,
	fault.NoContext:           `{"code":"noContext","message":"ERR_NO_CONTEXT: words"}`,
	fault.Unauthenticated:     `{"code":"unauthenticated","message":"words"}`,
	fault.InvalidBody:         `{"code":"invalidBody","message":"words"}`,
	fault.PlanError:           `{"code":"planError","message":"words"}`,
	fault.Internal:            `{"code":"planError","message":"ERR_INTERNAL: words"}`,
}

// A message that has its prefix already gets no second one, and the version of a conflict is told apart.
func TestModelsForm(t *testing.T) {
	f := fault.New(fault.PolicyDenied, "ERR_PERMISSION:RBAC: no").Form(fault.ModelsDialect, fault.Tool, fault.Stateless)
	if want := `{"code":"permissionDenied","message":"ERR_PERMISSION:RBAC: no"}`; string(f.Tool) != want {
		t.Errorf("%s, want %s", f.Tool, want)
	}
	f = fault.New(fault.RevisionConflict, "no").With("current", canonjson.Int(7)).Form(fault.ModelsDialect, fault.Tool, fault.Stateless)
	if want := `{"code":"versionConflict","message":"no","current":7}`; string(f.Tool) != want {
		t.Errorf("%s, want %s", f.Tool, want)
	}
}

// answered is what a transfer route says of a code: the status, and the code in the body.
type answered struct {
	status int
	code   string
}

// answers is the table by hand of the transfer routes, whose codes are a closed set. Sources: persistence.v1, section
// 2.1 (codes and statuses) and section 6.2 (who cannot be asked gives store_unavailable); security requirements, S55a
// (403 in place of 401, busy in place of 429 and of overload). The codes that the contract says never come, those of the
// JSON-RPC frame, and a bug in a handler are told as an unknown outcome: the contract has no other word.
var answers = map[fault.Code]answered{
	fault.InvalidRequest:      {400, "invalid_request"},
	fault.NotFound:            {404, "not_found"},
	fault.PolicyDenied:        {403, "policy_denied"},
	fault.RevisionConflict:    {500, "store_unavailable"},
	fault.IdempotencyConflict: {500, "store_unavailable"},
	fault.QuotaExceeded:       {413, "quota_exceeded"},
	fault.TransferIncomplete:  {400, "transfer_incomplete"},
	fault.IntegrityError:      {400, "integrity_error"},
	fault.UnsupportedFormat:   {400, "unsupported_format"},
	fault.RetentionBlocked:    {500, "store_unavailable"},
	fault.Busy:                {500, "busy"},
	fault.StoreUnavailable:    {500, "store_unavailable"},
	fault.ProfileBlocked:      {500, "store_unavailable"},
	fault.NoContext:           {500, "store_unavailable"},
	fault.Unauthenticated:     {500, "store_unavailable"},
	fault.InvalidBody:         {500, "store_unavailable"},
	fault.PlanError:           {500, "store_unavailable"},
	fault.UnauthorizedKey:     {403, "policy_denied"},
	fault.RateLimited:         {500, "busy"},
	fault.Overloaded:          {500, "busy"},
	fault.AuthBackend:         {500, "store_unavailable"},
	fault.ParseError:          {500, "store_unavailable"},
	fault.InvalidMessage:      {500, "store_unavailable"},
	fault.MethodNotFound:      {500, "store_unavailable"},
	fault.InvalidParams:       {500, "store_unavailable"},
	fault.UnknownTool:         {404, "not_found"},
	fault.UnknownResource:     {404, "not_found"},
	fault.UnknownPrompt:       {404, "not_found"},
	fault.HeaderMismatch:      {500, "store_unavailable"},
	fault.UnsupportedVersion:  {500, "store_unavailable"},
	fault.MissingCapability:   {500, "store_unavailable"},
	fault.Cancelled:           {500, "busy"},
	fault.Internal:            {500, "store_unavailable"},
}

// checkTransfer compares the form on a transfer route with the table by hand. It is the same in every dialect and era,
// and has nothing of JSON-RPC and no member beside code and message.
func checkTransfer(t *testing.T, name string, c fault.Code, d fault.Dialect, era fault.Era) {
	t.Helper()
	want, ok := answers[c]
	if !ok {
		t.Errorf("code %s has no row in the transfer table by hand", c)
		return
	}
	f := fault.New(c, "words").After(1500*time.Millisecond).With("detail", "d").Form(d, fault.Transfer, era)
	body := `{"error":{"code":"` + want.code + `","message":"words"}}`
	if f.ToolError || f.RPC != 0 || f.Data != nil || f.HTTP != want.status || string(f.Tool) != body {
		t.Errorf("%s: %+v with the body %s, want %d with %s", name, f, f.Tool, want.status, body)
	}
}

// checkForm compares one form with the table by hand.
func checkForm(t *testing.T, name string, c fault.Code, want expected, d fault.Dialect, s fault.Surface, era fault.Era) {
	t.Helper()
	f := fault.New(c, "words").After(1500*time.Millisecond).Form(d, s, era)
	if (want.business || d == fault.ModelsDialect && c == fault.Internal) && (s == fault.Tool || s == fault.Command) {
		body := `{"code":"` + string(c) + `","message":"words"}`
		switch d {
		case fault.PersistenceDialect:
			body = `{"error":` + body + `}`
		case fault.ModelsDialect:
			body = modelsWords[c]
		}
		if !f.ToolError || string(f.Tool) != body || f.HTTP != 200 || f.RPC != 0 {
			t.Errorf("%s: %+v, want the tool result %s", name, f, body)
		}
		return
	}
	if d == fault.ModelsDialect && c == fault.Internal {
		want = expected{true, -32603, -32603, 200, ""}
	}
	rpc := want.stateless
	if era == fault.Legacy {
		rpc = want.legacy
	}
	status := want.http
	if era == fault.Legacy && (status == 404 || status == 400) && c != fault.ParseError && c != fault.InvalidMessage {
		status = 200 // a message of a session; 404 would say that it is gone
	}
	if f.ToolError || f.RPC != rpc || f.HTTP != status || f.Message != "words" {
		t.Errorf("%s: %+v, want RPC error %d with HTTP %d", name, f, rpc, status)
	}
	data, err := canonjson.ParseStrict(f.Data, canonjson.Limits{})
	if err != nil {
		t.Errorf("%s: data %s: %v", name, f.Data, err)
	}
	switch {
	case want.business:
		if data.At("/error/code").Str() != string(c) || data.At("/error/message").Str() != "words" {
			t.Errorf("%s: data %s, want code and message", name, f.Data)
		}
	case data.Get("error").Str() != want.word || data.Get("retry_after_ms").Literal() != "1500":
		t.Errorf("%s: data %s, want the word %q and the retry time", name, f.Data, want.word)
	}
}

// Every constant of type Code is in Codes, once.
func TestCodesIsComplete(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "fault.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	declared := map[fault.Code]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if kind, ok := spec.Type.(*ast.Ident); ok && kind.Name == "Code" {
			text, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			declared[fault.Code(text)] = true
		}
		return true
	})
	seen := map[fault.Code]bool{}
	for _, c := range fault.Codes {
		if seen[c] || !declared[c] {
			t.Errorf("%s comes twice in Codes, or is no constant", c)
		}
		seen[c] = true
	}
	if len(declared) != len(seen) || len(declared) == 0 {
		t.Errorf("%d constants, %d codes in Codes", len(declared), len(seen))
	}
}

// The cause stays inside, on every surface.
func TestCauseNeverLeaves(t *testing.T) {
	cause := errors.New("dial tcp 10.0.0.1:5432: SECRET")
	for _, c := range fault.Codes {
		e := fault.New(c, "words").Wrap(cause)
		if !errors.Is(e, cause) || strings.Contains(e.Error(), "SECRET") {
			t.Errorf("%s: the operator's cause is lost, or in the text %q", c, e)
		}
		for _, d := range dialects {
			for _, s := range surfaces {
				for _, era := range eras {
					if f := e.Form(d, s, era); strings.Contains(fmt.Sprintf("%+v %s %s", f, f.Tool, f.Data), "SECRET") {
						t.Errorf("%s on %s: the cause is on the wire", c, s)
					}
				}
			}
		}
	}
}

func TestDetail(t *testing.T) {
	f := fault.New(fault.UnsupportedVersion, "no").With("supported", []string{"b", "a"}).With("asked", "z").With("n", 3).With("ok", true).
		With("value", canonjson.Object(canonjson.M("x", canonjson.Int(1)))).With("odd", 1.5).Form(fault.PlainDialect, fault.List, fault.Stateless)
	if want := `{"asked":"z","n":3,"odd":null,"ok":true,"supported":["b","a"],"value":{"x":1}}`; string(f.Data) != want {
		t.Errorf("data %s, want %s", f.Data, want)
	}
	if f := fault.New(fault.ParseError, "no").Form(fault.PlainDialect, fault.List, fault.Stateless); f.Data != nil {
		t.Errorf("data %s, want none", f.Data)
	}
}

func TestMessagesAreEscaped(t *testing.T) {
	f := fault.New(fault.NotFound, "a \"b\"\n\x00 \xff").Form(fault.PersistenceDialect, fault.Tool, fault.Stateless)
	if v, err := canonjson.ParseStrict(f.Tool, canonjson.Limits{}); err != nil || v.At("/error/message").Str() != "a \"b\"\n\x00 \ufffd" {
		t.Errorf("%s: %v", f.Tool, err)
	}
}

func TestErrors(t *testing.T) {
	conflict := fault.New(fault.RevisionConflict, "head is at revision %d", 4)
	wrapped := fmt.Errorf("put: %w", conflict)
	if conflict.Error() != "revision_conflict: head is at revision 4" || fault.As(wrapped) != conflict || fault.CodeOf(wrapped) != fault.RevisionConflict {
		t.Errorf("%v, %v", conflict, fault.CodeOf(wrapped))
	}
	if !errors.Is(wrapped, fault.New(fault.RevisionConflict, "")) || errors.Is(wrapped, fault.New(fault.NotFound, "")) {
		t.Error("errors.Is does not compare codes")
	}
	if fault.CodeOf(nil) != "" || fault.CodeOf(errors.New("x")) != fault.Internal || fault.As(errors.New("x")) != nil {
		t.Error("the code of no fault")
	}
	retryable := map[fault.Code]bool{fault.Busy: true, fault.StoreUnavailable: true, fault.RateLimited: true, fault.Overloaded: true, fault.AuthBackend: true}
	for _, c := range fault.Codes {
		if fault.New(c, "").Retryable() != retryable[c] {
			t.Errorf("%s: retryable is not %v", c, retryable[c])
		}
	}
}
