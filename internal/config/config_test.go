package config_test

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tabellion-mcp/tabellion/internal/catalog"
	"github.com/tabellion-mcp/tabellion/internal/config"
	"github.com/tabellion-mcp/tabellion/policy"
)

// update rewrites generated pages: go test ./internal/config -update.
var update = flag.Bool("update", false, "rewrite docs/configuration.md")

// load reads text as a configuration file.
func load(t *testing.T, text string, more config.Source) (*config.Config, error) {
	t.Helper()
	more.File = filepath.Join(t.TempDir(), "tabellion.yaml")
	if err := os.WriteFile(more.File, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return config.Load(more)
}

// mustLoad is load for a text that is right.
func mustLoad(t *testing.T, text string, more config.Source) *config.Config {
	t.Helper()
	c, err := load(t, text, more)
	if err != nil {
		t.Fatalf("load: %v\n%s", err, text)
	}
	return c
}

// TestOnlyDataIsNeeded: the defaults are safe (security requirements, S54).
func TestOnlyDataIsNeeded(t *testing.T) {
	c := mustLoad(t, "data: ./data\n", config.Source{})
	if !filepath.IsAbs(c.Data) || filepath.Base(c.Data) != "data" {
		t.Errorf("data is %q, want an absolute path beside the file", c.Data)
	}
	if c.Listen != "127.0.0.1:8635" || c.Ops != "127.0.0.1:8636" || c.Auth.Keys || c.Auth.Local != nil || c.Policy != nil {
		t.Errorf("the defaults are not closed: %+v", c)
	}
	if c.Limits.Rate != 50 || c.Limits.Burst != 100 || c.Limits.Concurrency != 16 || c.Limits.RequestBytes != 4<<20 {
		t.Errorf("limits are %+v, want those of the security requirements", c.Limits)
	}
	if _, err := load(t, "name: x\n", config.Source{}); err == nil || !strings.Contains(err.Error(), "data: it is needed") {
		t.Errorf("without data: got %v", err)
	}
}

// TestEveryKey reads one value of every kind.
func TestEveryKey(t *testing.T) {
	c := mustLoad(t, `
name: harbourline
data: /srv/data
listen: 0.0.0.0:8635
ops: none
hosts: [data.example.org, "[::1]"]
origins: [https://app.example.org]
auth:
  keys: true
  http_status: 200
  local: {subject: me, roles: [admin, writer]}
  pepper: env:PEPPER
  first_key: {user: ana, roles: [writer]}
policy:
  roles:
    writer: [persistence.read, persistence.write]
  assignments:
    - {subject: "role:writer", role: writer, on: /persistence/namespaces/explorer/**}
  denies:
    - {subject: "*", capabilities: [persistence.delete], on: /**}
    - {subject: user:eve, on: /**}
limits: {rate: 2.5, burst: 7, concurrency: 3, total_concurrency: 9, deadline: 1m30s, request_bytes: 65536, response_bytes: 2MiB, auth_failures: 5}
transports: {sse: true}
tool_names: portable
persistence:
  durability: file-sync
  retention: 90d
  limits: {document_bytes: 512KiB, artifact_bytes: 2GiB, open_uploads: 3, references: 10, page_size: 20, namespace_bytes: 1GiB, idempotency_retention: 30d}
runtime: {gc_percent: 200, memory_limit: 128MiB}
transfer: {listen: 127.0.0.1:3001}
log: {level: warn, format: json}
`, config.Source{})
	l, p := c.Limits, c.Persistence
	got := []any{c.Name, c.Data, c.Listen, c.Ops, c.Hosts, c.Origins, c.Auth.Keys, c.Auth.HTTPStatus, *c.Auth.Local, *c.Auth.FirstKey, *c.Policy,
		l.Rate, l.Burst, l.Concurrency, l.TotalConcurrency, l.Deadline, l.RequestBytes, l.ResponseBytes, l.AuthFailures,
		c.Transports.SSE, c.ToolNames, string(p.Durability), p.Limits.MaxDocumentBytes, p.Limits.MaxReferences, p.Limits.MaxPageSize,
		p.Limits.MaxNamespaceBytes, p.Limits.IdempotencyRetention, p.Limits.MaxArtifactBytes, p.OpenUploads, *p.Retention, c.Transfer.Listen, c.Runtime, c.Log}
	want := []any{"harbourline", "/srv/data", "0.0.0.0:8635", "", []string{"data.example.org", "[::1]"}, []string{"https://app.example.org"},
		true, 200, config.Local{Subject: "me", Roles: []string{"admin", "writer"}}, config.FirstKey{User: "ana", Roles: []string{"writer"}},
		policy.Config{
			Roles:       map[string][]string{"writer": {"persistence.read", "persistence.write"}},
			Assignments: []policy.Assignment{{Subject: "role:writer", Role: "writer", On: "/persistence/namespaces/explorer/**"}},
			Denies: []policy.Deny{{Subject: "*", Capabilities: []policy.Capability{"persistence.delete"}, On: "/**"},
				{Subject: "user:eve", On: "/**"}},
		},
		2.5, 7, 3, 9, 90 * time.Second, 65536, 2 << 20, 5, true, catalog.PortableNames, "file-sync", int64(512 << 10), 10, 20,
		int64(1 << 30), 30 * 24 * time.Hour, int64(2 << 30), 3, 90 * 24 * time.Hour, "127.0.0.1:3001", config.Runtime{GCPercent: 200, MemoryLimit: 128 << 20}, config.Log{Level: "warn", Format: "json"}}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// TestRefused holds what is refused, with the line and the words.
func TestRefused(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"unknown key", "data: d\nlisten: 127.0.0.1:1\nlisen: x\n", `tabellion.yaml:3:1: unknown key "lisen"; the nearest valid key is "listen"`},
		{"unknown key in a section", "data: d\nlimits:\n  rte: 5\n", `tabellion.yaml:3:3: unknown key "limits.rte"; the nearest valid key is "limits.rate"`},
		{"key of another section", "data: d\nburst: 5\n", `tabellion.yaml:2:1: unknown key "burst"; the nearest valid key is "limits.burst"`},
		{"swapped letters", "daat: d\n", `tabellion.yaml:1:1: unknown key "daat"; the nearest valid key is "data"`},
		{"unknown key of a record", "data: d\npolicy:\n  assignments:\n    - {subjekt: 'user:a', role: admin, on: /**}\n", `:4:8: unknown key "policy.assignments[0].subjekt"; the nearest valid key is "policy.assignments[0].subject"`},
		{"duplicate key", "data: d\nname: a\nname: b\n", `tabellion.yaml:3:1: mapping key "name" already defined`},
		{"duplicate key in flow", "data: d\nlimits: {rate: 1, rate: 2}\n", `mapping key "rate" already defined`},
		{"text for a number", "data: d\nlimits: {rate: fast}\n", `tabellion.yaml:2:16: limits.rate: expected a number from 0 to 1000000, got a text`},
		{"number for a text", "data: d\nname: 5\n", `tabellion.yaml:2:7: name: expected a text, got a whole number; write "5" if a text is meant`},
		{"text for a bool", "data: d\nauth: {keys: yes}\n", `auth.keys: expected true or false, got a text`},
		{"list for a text", "data: [d]\n", `data: expected a text, got a list`},
		{"text for a list", "data: d\nhosts: a.example\n", `hosts: expected a list of texts, got a text`},
		{"number in a list", "data: d\nhosts: [1]\n", `hosts: expected a text, got a whole number; write "1" if a text is meant`},
		{"text for a section", "data: d\nlimits: many\n", `limits: expected a section with keys, got a text`},
		{"section for records", "data: d\npolicy: {assignments: {a: b}}\n", `policy.assignments: expected a list of sections, got a section`},
		{"nothing for a text", "data:\n", `data: expected a text, got nothing`},
		{"below the range", "data: d\nlimits: {burst: 0}\n", `limits.burst: expected a whole number from 1 to 1000000, got "0"`},
		{"above the ceiling", "data: d\nlimits: {request_bytes: 1GiB}\n", `limits.request_bytes: expected a size from 4KiB to 16MiB`},
		{"not a number", "data: d\nlimits: {rate: .nan}\n", `a nan is not allowed`},
		{"short retention of keys", "data: d\npersistence: {limits: {idempotency_retention: 1h}}\n", `expected a time span from 7d to 366d`},
		{"a time span without a unit", "data: d\nlimits: {deadline: 30}\n", `limits.deadline: expected a time span from 1s to 10m, such as 30s or 7d, got a whole number; write 30s`},
		{"days without a unit", "data: d\npersistence: {limits: {idempotency_retention: 30}}\n", `got a whole number; write 30d`},
		{"an assignment without a place", "data: d\npolicy:\n  assignments:\n    - {subject: 'user:a', role: admin}\n", `tabellion.yaml:4:7: policy.assignments[0]: on is missing: A path, or a path with /**`},
		{"a deny of nobody", "data: d\npolicy: {denies: [{on: /**}]}\n", `policy.denies[0]: subject is missing`},
		{"a document that cannot be answered", "data: d\npersistence: {limits: {document_bytes: 2MiB}}\n", `limits.response_bytes: a document of persistence.limits.document_bytes, 2MiB, could be written and not read`},
		{"an answer a byte too small", "data: d\nlimits: {response_bytes: 3407871}\n", `expected at least 3407872`},
		{"other retention", "data: d\npersistence: {retention: sometimes}\n", `persistence.retention: expected forever, or a time span up to 36600d such as 90d`},
		{"bad address", "data: d\nlisten: '8635'\n", `listen: expected host:port`},
		{"empty host", "data: d\nlisten: ':8635'\n", `listen: expected host:port`},
		{"wildcard host", "data: d\nhosts: ['*.example.org']\n", `hosts: expected a host name without scheme, port and wildcard`},
		{"wildcard origin", "data: d\norigins: ['*']\n", `origins: expected an origin`},
		{"null origin", "data: d\norigins: ['null']\n", `origins: expected an origin`},
		{"unknown role", "data: d\npolicy:\n  assignments:\n    - {subject: 'user:a', role: writer, on: /**}\n", `tabellion.yaml:4:7: policy.assignments[0]: unknown role "writer"`},
		{"unknown capability", "data: d\npolicy: {roles: {writer: [persistence.wirte]}}\n", `tabellion.yaml:2:18: policy.roles.writer: unknown capability "persistence.wirte"`},
		{"bad pattern", "data: d\npolicy:\n  denies:\n    - {subject: '*', on: 'persistence/*'}\n", `policy.denies[0].on`},
		{"role admin", "data: d\npolicy: {roles: {admin: []}}\n", `the role admin is built in`},
		{"secret in the file", "data: d\nauth: {keys: true, pepper: hunter2}\n", `auth.pepper: expected a reference to a secret, env:NAME or file:path`},
		{"half a certificate", "data: d\ntls: {cert: a.pem}\n", `tls: cert and key belong together`},
		{"first key without keys", "data: d\nauth: {first_key: {user: a}}\n", `auth.first_key: it needs auth.keys: true`},
		{"local without subject", "data: d\nauth: {local: {roles: [admin]}}\n", `auth.local: subject is missing`},
		{"same address twice", "data: d\nops: 127.0.0.1:8635\n", `ops: it must be another address than listen`},
		{"public without keys", "data: d\nlisten: 0.0.0.0:1\nhosts: [a.example]\n", `:2:1: listen: an address that is not loopback needs auth.keys`},
		{"public without hosts", "data: d\nlisten: 192.0.2.1:1\nauth: {keys: true}\n", `listen: an address that is not loopback needs the list of names`},
		{"public ops without hosts", "data: d\nops: '[::]:1'\n", `ops: an address that is not loopback needs the list of names`},
		{"merge key", "data: d\nlimits: {<<: {rate: 5}}\n", `is not a plain text`},
		{"tag", "data: !!str d\n", `a tag is not allowed`},
		{"two documents", "data: d\n---\ndata: e\n", `several documents`},
		{"not UTF-8", "data: \xff\n", `not UTF-8`},
		{"broken YAML", "data: [1\n", `tabellion.yaml:`},
		{"undefined alias", "data: *x\n", `alias *x has no anchor`},
		{"store", "data: d\nstore: env:DATABASE\n", `store: this version does not serve it: only the embedded store`},
		{"blobs", "data: d\nblobs: s3://x\n", `blobs: this version does not serve it`},
		{"transfer address", "data: d\ntransfer: {listen: here}\n", `transfer.listen: `},
		{"transfer beyond this machine", "data: d\ntransfer: {listen: 0.0.0.0:1}\n", `transfer.listen: an address that is not loopback needs auth.keys: true`},
		{"transfer where MCP is", "data: d\nlisten: 127.0.0.1:1\ntransfer: {listen: 127.0.0.1:1}\n", `transfer.listen: it must be another address than listen`},
		{"issuers", "data: d\nauth: {issuers: []}\n", `auth.issuers: this version does not serve it: access tokens are not served yet; use API keys (auth.keys)`},
		{"ask", "data: d\nmodels: {definitions: m, ask: {model: x}}\n", `models.ask: this version does not serve it`},
		{"models alone", "data: d\nmodels: {}\n", `models.definitions: it is needed`},
		{"no source", "data: d\nmodels: {definitions: m}\n", `models.sources: at least one database is needed`},
		{"a source without reads", "data: d\nmodels: {definitions: m, sources: {default: {write: \"sqlite:x\"}}}\n", `models.sources.default: the address for reads is missing`},
		{"a password", "data: d\nmodels: {definitions: m, sources: {default: \"postgres://u:SECRET@h/d\"}}\n", `a password never stands in the configuration`},
		{"another engine", "data: d\nmodels: {definitions: m, sources: {default: \"mysql://h/d\"}}\n", `mysql is not served in this version`},
		{"no address", "data: d\nmodels: {definitions: m, sources: {default: shop.db}}\n", `expected sqlite:PATH`},
		{"context", "data: d\ncontext: {workspaces: []}\n", `context: this version does not serve it`},
		{"contract", "data: d\ncontract: {lockfile: l}\n", `contract: this version does not serve it`},
		{"broker", "data: d\nbroker: {url: wss://b}\n", `broker: this version does not serve it`},
		{"telemetry", "data: d\ntelemetry: {otlp: http://127.0.0.1:1}\n", `telemetry: this version does not serve it`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := load(t, tt.text, config.Source{})
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got  %v\nwant %s", err, tt.want)
			}
		})
	}
}

// TestAllProblemsAtOnce: a person corrects a file once, in the order of its lines.
func TestAllProblemsAtOnce(t *testing.T) {
	_, err := load(t, "nam: x\ndata: d\nlimits: {rate: -1, burts: 5}\n", config.Source{})
	lines := strings.Split(err.Error(), "\n")
	if len(lines) != 3 || !strings.Contains(lines[0], ":1:1: ") || !strings.Contains(lines[1], ":3:16: ") || !strings.Contains(lines[2], ":3:20: ") {
		t.Errorf("got %q", lines)
	}
}

// TestSecretNeverRepeated: what was written in place of a reference may be the secret.
func TestSecretNeverRepeated(t *testing.T) {
	_, err := load(t, "data: d\nauth: {keys: true, pepper: hunter2}\n", config.Source{})
	if err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("got %v", err)
	}
}

// TestPrecedence: a flag wins over the environment, and that over the file.
func TestPrecedence(t *testing.T) {
	const file = "data: d\nname: file\nlimits: {rate: 1, burst: 1}\nauth: {pepper: env:TABELLION_PEPPER}\n"
	c := mustLoad(t, file, config.Source{
		Environ: []string{"TABELLION_NAME=env", "TABELLION_LIMITS_RATE=2", "TABELLION_HOSTS=a.example, b.example", "TABELLION_AUTH_KEYS=true",
			"TABELLION_PEPPER=x", "TABELLION_SERVICE_PORT_HTTP=8635", "TABELLION_PORT_8635_TCP=tcp://10.0.0.1:8635", "OTHER=1"},
		Set: []config.Setting{{Key: "limits.rate", Value: "3", Flag: "--set"}},
	})
	if c.Name != "env" || c.Limits.Rate != 3 || c.Limits.Burst != 1 || !c.Auth.Keys {
		t.Errorf("name %q, rate %v, burst %d, keys %v", c.Name, c.Limits.Rate, c.Limits.Burst, c.Auth.Keys)
	}
	if d := cmp.Diff([]string{"a.example", "b.example"}, c.Hosts); d != "" {
		t.Error(d)
	}
}

// TestOverridesRefused: overrides are as strict as the file and say where they came from.
func TestOverridesRefused(t *testing.T) {
	for _, tt := range []struct {
		name, want string
		src        config.Source
	}{
		{"variable", `environment variable TABELLION_LIMITS_RATE: limits.rate: expected a number`, config.Source{Environ: []string{"TABELLION_LIMITS_RATE=fast"}}},
		{"no key", `environment variable TABELLION_LIMIT_RATE: it names no key; the nearest is TABELLION_LIMITS_RATE; variables that begin with`, config.Source{Environ: []string{"TABELLION_LIMIT_RATE=5"}}},
		{"no key at all", `environment variable TABELLION_ZZZ: it names no key; variables`, config.Source{Environ: []string{"TABELLION_ZZZ="}}},
		{"a section", `environment variable TABELLION_LIMITS: it is a section and can be set in a file only`, config.Source{Environ: []string{"TABELLION_LIMITS=5"}}},
		{"a list of sections", `environment variable TABELLION_POLICY_ASSIGNMENTS: it is a section and can be set in a file only`, config.Source{Environ: []string{"TABELLION_POLICY_ASSIGNMENTS=x"}}},
		{"unserved variable", `environment variable TABELLION_STORE: store: this version does not serve it`, config.Source{Environ: []string{"TABELLION_STORE=postgres://x"}}},
		{"flag", `flag --listen: listen: expected host:port`, config.Source{Set: []config.Setting{{Key: "listen", Value: "x", Flag: "--listen"}}}},
		{"unknown key", `unknown key "limits.rat"; the nearest valid key is "limits.rate"`, config.Source{Set: []config.Setting{{Key: "limits.rat", Value: "1", Flag: "--set"}}}},
		{"section", `limits: it is a section`, config.Source{Set: []config.Setting{{Key: "limits", Value: "1", Flag: "--set"}}}},
		{"policy", `policy.assignments: it is a section`, config.Source{Set: []config.Setting{{Key: "policy.assignments", Value: "1", Flag: "--set"}}}},
		{"below a value", `unknown key "name.x"`, config.Source{Set: []config.Setting{{Key: "name.x", Value: "1", Flag: "--set"}}}},
		{"unserved", `context: this version does not serve it`, config.Source{Set: []config.Setting{{Key: "context.plans", Value: "1", Flag: "--set"}}}},
		{"between keys", `flag --listen: listen: an address that is not loopback needs auth.keys`, config.Source{Set: []config.Setting{{Key: "listen", Value: "0.0.0.0:1", Flag: "--listen"}}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := load(t, "data: d\n", tt.src)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got  %v\nwant %s", err, tt.want)
			}
		})
	}
}

// TestDevStaysOnLoopback (persistence.v1, section 1).
func TestDevStaysOnLoopback(t *testing.T) {
	c := mustLoad(t, "data: d\n", config.Source{})
	c.Dev = true
	if err := c.Check(); err != nil {
		t.Errorf("loopback: %v", err)
	}
	for _, address := range []string{"0.0.0.0:8635", "[::]:8635", "192.0.2.1:8635", "example.org:8635"} {
		c.Listen, c.Hosts, c.Auth.Keys = address, []string{"a.example"}, true
		if err := c.Check(); err == nil || !strings.Contains(err.Error(), "--dev") {
			t.Errorf("%s: got %v, want a refusal", address, err)
		}
	}
}

// TestBounds: a hostile file ends early, in little time.
func TestBounds(t *testing.T) {
	bomb := "data: d\nname: &a [x,x,x,x,x,x,x,x,x]\n"
	for i := range 8 {
		name, last := string(rune('b'+i)), string(rune('a'+i))
		bomb += "k" + name + ": &" + name + " [" + strings.TrimSuffix(strings.Repeat("*"+last+",", 9), ",") + "]\n"
	}
	for name, text := range map[string]string{
		"large file":       "data: d\n#" + strings.Repeat("x", 300<<10),
		"many tokens":      strings.Repeat("- a\n", 40_000),
		"deep flow":        "data: " + strings.Repeat("[", 100_000),
		"deep flow closed": "data: " + strings.Repeat("[", 40) + strings.Repeat("]", 40),
		"deep block":       "data:\n" + deepBlock(60),
		"alias bomb":       bomb,
		"alias in itself":  "data: &a [*a]\n",
	} {
		t.Run(name, func(t *testing.T) {
			began := time.Now()
			if _, err := load(t, text, config.Source{}); err == nil {
				t.Error("it was accepted")
			} else if len(err.Error()) > 4096 {
				t.Errorf("the message has %d bytes", len(err.Error()))
			}
			if d := time.Since(began); d > 20*time.Second {
				t.Errorf("it took %s", d)
			}
		})
	}
}

// deepBlock is n sections, each in the one before.
func deepBlock(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(strings.Repeat(" ", i+1) + "a:\n")
	}
	return b.String()
}

// TestDocumentation: docs/configuration.md is what the code says.
func TestDocumentation(t *testing.T) {
	page := filepath.Join("..", "..", "docs", "configuration.md")
	if *update {
		if err := os.WriteFile(page, config.Markdown(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(config.Markdown()), string(got)); d != "" {
		t.Errorf("the page is not what the code says; run: go generate ./internal/config\n%s", d)
	}
	for _, word := range []string{"issuers", "broker", "telemetry", "blobs", "models.ask", "context."} {
		if bytes.Contains(got, []byte(word)) {
			t.Errorf("the page speaks of %q, which is not served", word)
		}
	}
}

// TestTemplate: the file that init writes is valid as it is, and the defaults that it shows are the defaults.
func TestTemplate(t *testing.T) {
	text := string(config.Template("harbourline"))
	c := mustLoad(t, text, config.Source{})
	if c.Name != "harbourline" || !c.Auth.Keys || c.Auth.Local == nil || c.Auth.Local.Subject != "me" {
		t.Errorf("the template gives %+v", c.Auth)
	}
	// Taking the comment marks off the keys gives a file with every key, valid too.
	var all []string
	for line := range strings.Lines(text) {
		code := strings.TrimLeft(line, " ")
		rest, commented := strings.CutPrefix(code, "# ")
		if indent := line[:len(line)-len(code)]; commented && looksLikeKey(rest) {
			line = indent + rest
		}
		all = append(all, line)
	}
	full := strings.Join(all, "")
	dir := t.TempDir()
	for _, f := range []string{"cert.pem", "key.pem", "pepper"} {
		os.WriteFile(filepath.Join(dir, f), []byte("x"), 0o600)
	}
	got := mustLoad(t, full, config.Source{})
	want := config.Default()
	if d := cmp.Diff([]any{want.Limits, want.Persistence, want.Log, want.Listen, want.Ops, want.ToolNames, want.Transports},
		[]any{got.Limits, got.Persistence, got.Log, got.Listen, got.Ops, got.ToolNames, got.Transports}); d != "" {
		t.Errorf("the template shows other defaults:\n%s", d)
	}
	if got.Policy == nil || got.Auth.FirstKey == nil || got.TLS.Key.IsZero() {
		t.Errorf("a section is missing in the full template:\n%s", full)
	}
}

// looksLikeKey tells a commented key from a commented sentence.
func looksLikeKey(s string) bool {
	s = strings.TrimLeft(s, " ")
	if strings.HasPrefix(s, "- {") {
		return true
	}
	word, _, ok := strings.Cut(s, ":")
	return ok && word != "" && strings.Trim(word, "abcdefghijklmnopqrstuvwxyz_") == ""
}

// FuzzLoad: no text panics, and what is accepted passes Check.
func FuzzLoad(f *testing.F) {
	for _, s := range []string{"data: d\n", "data: &a d\nname: *a\n", "a: {b: [1, 2.5, true, null]}", "? x\n: y", "data: |\n  x\n", "policy: {roles: {a: []}}", string(config.Template("x"))} {
		f.Add([]byte(s))
	}
	file := filepath.Join(f.TempDir(), "f.yaml")
	f.Fuzz(func(t *testing.T, text []byte) {
		if len(text) > 4<<10 {
			return
		}
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		if c, err := config.Load(config.Source{File: file}); err == nil && c.Check() != nil {
			t.Errorf("accepted and not valid: %q", text)
		}
	})
}
