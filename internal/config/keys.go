package config

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/tabellion-mcp/tabellion/internal/catalog"
	"github.com/tabellion-mcp/tabellion/model"
	"github.com/tabellion-mcp/tabellion/model/tools"
	"github.com/tabellion-mcp/tabellion/persistence"
	"github.com/tabellion-mcp/tabellion/policy"
)

// root describes every key of the file, in the order of the documentation.
var root = section("", "",
	text("name", "tabellion", "What this server is called, in answers to clients and in snippets.",
		func(c *Config) *string { return &c.Name }, name),
	text("data", "", "Folder of the embedded store, taken from the folder of this file. It is made when it is missing. The only key that is needed.",
		func(c *Config) *string { return &c.Data }, nil),
	text("listen", DefaultListen, "Address of the MCP endpoints. An address that is not loopback needs `hosts` and `auth.keys`.",
		func(c *Config) *string { return &c.Listen }, address),
	text("ops", DefaultOps, "Address of /healthz, /readyz and /metrics. `none` opens no such listener.",
		func(c *Config) *string { return &c.Ops }, addressOrNone),
	list("hosts", "[]", "Host names that requests may be addressed to. The names of loopback are always answered on a loopback address.",
		func(c *Config) *[]string { return &c.Hosts }, host),
	list("origins", "[]", "Web origins that may send requests from a browser.",
		func(c *Config) *[]string { return &c.Origins }, originOf),
	section("tls", "Certificate of the MCP listener. Without it the listener speaks plain HTTP.",
		text("cert", "", "File with the certificate chain, PEM.", func(c *Config) *string { return &c.TLS.Cert }, nil),
		secret("key", "The private key, PEM.", func(c *Config) *Secret { return &c.TLS.Key })),
	authKeys,
	policyKeys,
	limitKeys,
	section("transports", "Older forms of MCP over HTTP.",
		boolean("sse", "false", "Serve the old form with `GET /sse` and `POST /messages` too.", func(c *Config) *bool { return &c.Transports.SSE })),
	choice("tool_names", "contract", "How tool names are written: `contract` is persistence.get, `portable` is persistence_get for clients that refuse dots.",
		[]string{"contract", "portable"}, func(c *Config, s string) { c.ToolNames = catalog.Names(s) }),
	persistenceKeys,
	section("transfer", "Where files are sent and fetched: `PUT /uploads/...` and `GET /artifacts/...`. They are served on `listen` in any case.",
		text("listen", "none", "A further address for these routes alone; `none` is no such listener. With --dev it is 127.0.0.1:3001, when that is free and nothing is set here.", func(c *Config) *string { return &c.Transfer.Listen }, addressOrNone)),
	section("runtime", "Memory behaviour of the process. The program chooses what is not set.",
		integer("gc_percent", "", "As the environment variable GOGC.", 20, 2000, func(c *Config, n int64) { c.Runtime.GCPercent = int(n) }),
		size("memory_limit", "", "As the environment variable GOMEMLIMIT: a soft bound.", 32<<20, 1<<40, func(c *Config, n int64) { c.Runtime.MemoryLimit = n })),
	section("log", "What is written to stderr.",
		choice("level", "info", "The least important kind of line that is written.", []string{"debug", "info", "warn", "error"}, func(c *Config, s string) { c.Log.Level = s }),
		choice("format", "text", "Form of the lines.", []string{"text", "json"}, func(c *Config, s string) { c.Log.Format = s })),
	unserved("store", "only the embedded store is served; leave the key out and set data"),
	unserved("blobs", "artifacts are kept in the folder blobs of data; leave the key out"),
	modelKeys,
	unserved("context", "the context slot is not served yet; leave the section out"),
	unserved("contract", "contracts are not served yet; leave the section out"),
	unserved("broker", "brokers are not served yet; leave the section out"),
	unserved("telemetry", "traces are not served yet; /metrics is on the ops address"),
)

// authKeys says who may call.
var authKeys = section("auth", "Who may call. Without this section nobody can, over HTTP or by stdio.",
	section("local", "The principal of `stdio` and of the commands on this machine.",
		text("subject", "", "Name of the principal; `me` is the subject local:me in the policy. user:NAME and service:NAME are possible too.", func(c *Config) *string { return &c.local().Subject }, nil),
		list("roles", "", "Roles of the principal. The role `admin` may do everything; without a section `policy` it is the default when this key is absent. `[]` is no role.", func(c *Config) *[]string { return &c.local().Roles }, nil)),
	boolean("keys", "false", "Accept API keys, which `tabellion keys create` makes.", func(c *Config) *bool { return &c.Auth.Keys }),
	secret("pepper", "Mixed into the stored digests of API keys, so that a copy of the store does not suffice to check a guess. A change makes all keys invalid.",
		func(c *Config) *Secret { return &c.Auth.Pepper }),
	scalar("http_status", "401 or 200", "401", "Status of the answer to a request without a valid key; 200 is for clients that hide the body of a 401.", []kind{kindInteger},
		func(c *Config, s string) error {
			if s != "401" && s != "200" {
				return fmt.Errorf("expected 401 or 200, got %s", quote(s))
			}
			c.Auth.HTTPStatus, _ = strconv.Atoi(s)
			return nil
		}),
	section("first_key", "Make a key at a start that finds none in the store, and show it once on stderr.",
		text("user", "", "Whom the key acts as: `ana` is the subject user:ana in the policy.", func(c *Config) *string { return &c.firstKey().User }, name),
		list("roles", "[]", "Roles of the key.", func(c *Config) *[]string { return &c.firstKey().Roles }, name)),
	unserved("issuers", "access tokens are not served yet; use API keys (auth.keys)"),
)

// policyKeys says who may do what.
var policyKeys = begun(section("policy", "Who may do what. Nothing is allowed that no assignment allows, and denies win. Without this section the local principal has the role `admin` and nobody else has any right.",
	&key{name: "roles", doc: "A name, and the capabilities that it stands for: persistence.read, persistence.write, persistence.delete, persistence.admin, models.read, models.write, operator.read, operator.admin. The role `admin` is built in.",
		entries: func(c *Config, role string) *key {
			return list(role, "", "", func(*Config) *[]string { return new([]string) }, nil).storing(func(c *Config, texts []string) {
				p := c.policy()
				if p.Roles == nil {
					p.Roles = map[string][]string{}
				}
				p.Roles[role] = texts
			})
		}},
	&key{name: "assignments", doc: "Who has which role where.", records: func() ([]*key, func(*Config)) {
		a := &policy.Assignment{}
		return []*key{
			need(text("subject", "", "user:NAME, role:NAME, key:ID, local:NAME, or * for every authenticated caller.", func(*Config) *string { return &a.Subject }, nil)),
			need(text("role", "", "A role of `policy.roles`, or `admin`.", func(*Config) *string { return &a.Role }, nil)),
			need(text("on", "", "A path, or a path with /** for all below it: /persistence/namespaces/explorer/**.", func(*Config) *string { return &a.On }, nil)),
		}, func(c *Config) { p := c.policy(); p.Assignments = append(p.Assignments, *a) }
	}},
	&key{name: "denies", doc: "What is taken away, whatever an assignment says.", records: func() ([]*key, func(*Config)) {
		d, caps := &policy.Deny{}, new([]string)
		return []*key{
				need(text("subject", "", "As in an assignment.", func(*Config) *string { return &d.Subject }, nil)),
				list("capabilities", "[]", "What is taken away; all when the list is empty.", func(*Config) *[]string { return caps }, nil),
				need(text("on", "", "As in an assignment.", func(*Config) *string { return &d.On }, nil)),
			}, func(c *Config) {
				for _, name := range *caps {
					d.Capabilities = append(d.Capabilities, policy.Capability(name))
				}
				p := c.policy()
				p.Denies = append(p.Denies, *d)
			}
	}},
), func(c *Config) { c.policy() })

// limitKeys bounds calls.
var limitKeys = section("limits", "Bounds of calls and messages.",
	number("rate", "50", "Calls a second of one principal; 0 is no limit.", 0, maxRate, func(c *Config) *float64 { return &c.Limits.Rate }),
	integer("burst", "100", "Calls that may come at once after a pause.", 1, maxRate, func(c *Config, n int64) { c.Limits.Burst = int(n) }),
	integer("concurrency", "16", "Calls under way of one principal.", 1, maxConcurrency, func(c *Config, n int64) { c.Limits.Concurrency = int(n) }),
	integer("total_concurrency", "256", "Calls under way in all.", 1, maxTotal, func(c *Config, n int64) { c.Limits.TotalConcurrency = int(n) }),
	duration("deadline", "30s", "How long one call may take.", time.Second, maxDeadline, func(c *Config) *time.Duration { return &c.Limits.Deadline }),
	size("request_bytes", "4MiB", "Largest message that is read.", minMessage, maxMessage, func(c *Config, n int64) { c.Limits.RequestBytes = int(n) }),
	size("response_bytes", "4MiB", "Largest result of one call: at least three times persistence.limits.document_bytes and 256 KiB, because a result holds a document as JSON and once more as escaped text.", minMessage, maxMessage, func(c *Config, n int64) { c.Limits.ResponseBytes = int(n) }),
	integer("auth_failures", "20", "Failed authentications of one address in a minute, before it is refused for a minute.", 1, maxAuthFailures, func(c *Config, n int64) { c.Limits.AuthFailures = int(n) }),
)

// persistenceKeys configures the slot.
var persistenceKeys = section("persistence", "Documents and artifacts.",
	choice("durability", string(persistence.FileAndDirectorySync), "What an acknowledged write survives: `file-and-directory-sync` is the loss of power; `file-sync` leaves out the sync of folders, and a file made just before the loss of power may be gone.",
		[]string{string(persistence.FileAndDirectorySync), string(persistence.FileSync)},
		func(c *Config, s string) { c.Persistence.Durability = persistence.Durability(s) }),
	scalar("retention", "forever, or a time span such as 90d", "forever", "How long superseded revisions and artifacts are kept at least. `forever`: nothing can be purged. With a time span a principal with the capability persistence.admin may purge what is older and what nothing refers to; nothing is purged by itself.",
		[]kind{kindText}, func(c *Config, s string) error {
			c.Persistence.Retention = nil
			if s == "forever" {
				return nil
			}
			d, err := parseDuration(s)
			if err != nil || d < 0 || d > maxKeep {
				return fmt.Errorf("expected forever, or a time span up to %s such as 90d, got %s", formatDuration(maxKeep), quote(s))
			}
			c.Persistence.Retention = &d
			return nil
		}),
	section("limits", "Bounds of documents and artifacts; all but open_uploads are shown to clients by persistence.capabilities.",
		size("document_bytes", "1MiB", "Largest payload, in canonical form.", 1, maxDocument, func(c *Config, n int64) { c.Persistence.Limits.MaxDocumentBytes = n }),
		size("artifact_bytes", "1GiB", "Largest artifact.", 1, maxArtifact, func(c *Config, n int64) { c.Persistence.Limits.MaxArtifactBytes = n }),
		integer("open_uploads", "20", "Uploads that one principal may have open at once; 0 is no limit.", 0, maxUploads, func(c *Config, n int64) { c.Persistence.OpenUploads = int(n) }),
		integer("references", "255", "Most references of one document.", 1, maxReferences, func(c *Config, n int64) { c.Persistence.Limits.MaxReferences = int(n) }),
		integer("page_size", "200", "Largest page of a list.", 1, maxPage, func(c *Config, n int64) { c.Persistence.Limits.MaxPageSize = int(n) }),
		size("namespace_bytes", "10GiB", "Room of one namespace: all revisions, artifacts, and the declared sizes of open uploads.", 1, maxNamespace, func(c *Config, n int64) { c.Persistence.Limits.MaxNamespaceBytes = n }),
		duration("idempotency_retention", "7d", "How long idempotency keys are remembered.", minRetention, maxRetention, func(c *Config) *time.Duration { return &c.Persistence.Limits.IdempotencyRetention })),
)

// modelKeys configures the slot models.
var modelKeys = begun(section("models", "Data of databases, by model definitions. Without this section no model is served.",
	text("definitions", "", "File or folder of model definitions. It is needed.", func(c *Config) *string { return &c.models().Definitions }, nil),
	&key{name: "sources", doc: "Databases by name; definitions without a name mean `default`. Either one address, which is read only, or `read` and `write`. An address is `sqlite:PATH`, `postgres://...` without a password, or a reference to one, `env:NAME` or `file:PATH`.",
		entries: func(_ *Config, sourceName string) *key { return modelSource(sourceName) }},
	choice("surface", string(tools.PerModel), "`per-model` gives five tools for each model; `generic` gives five in all, which take the model as an argument.",
		[]string{string(tools.PerModel), string(tools.Generic)}, func(c *Config, s string) { c.models().Surface = tools.Surface(s) }),
	list("only", "[]", "Models that are offered; all when it is empty. Others are unknown to clients.", func(c *Config) *[]string { return &c.models().Only }, nil),
	text("prefix", "", "Put before the name of every model, where two slots would make tools of one name.", func(c *Config) *string { return &c.models().Prefix }, prefix),
	choice("unconfigured", string(model.Closed), "What a model or field without a role list means: `closed`, nobody; `read`, whoever has a role may read; `open`, everybody but guests may read and write.",
		[]string{string(model.Closed), string(model.ReadOpen), string(model.Open)}, func(c *Config, s string) { c.models().Unconfigured = model.Unconfigured(s) }),
	text("policy", "", "File with a dynamic policy over the role lists: grants by role and model, with fields, owner and row conditions. Both must allow.", func(c *Config) *string { return &c.models().Policy }, nil),
	integer("max_unindexed_rows", "100000", "A sort that no index serves is refused for tables of more rows, by the database's estimate; 0 is no limit.", 0, 1<<40, func(c *Config, n int64) { c.models().MaxUnindexed = n }),
	unserved("ask", "questions in plain words are not served yet; leave the key out"),
), func(c *Config) { c.models() })

// modelSource is one database: an address, or a section.
func modelSource(sourceName string) *key {
	at := func(c *Config) *ModelSource {
		m := c.models()
		if m.Sources == nil {
			m.Sources = map[string]*ModelSource{}
		}
		if m.Sources[sourceName] == nil {
			m.Sources[sourceName] = &ModelSource{}
		}
		return m.Sources[sourceName]
	}
	k := scalar(sourceName, "an address, or read and write", "", "", []kind{kindText}, func(c *Config, s string) error {
		at(c).Read = s
		return sourceAddress(s)
	})
	k.keys = []*key{
		text("read", "", "Address for reads.", func(c *Config) *string { return &at(c).Read }, sourceAddress),
		text("write", "", "Address for writes. Without it there are no tools that write.", func(c *Config) *string { return &at(c).Write }, sourceAddress),
		list("accept", "[]", "Rights of the database roles that are accepted although a server should not have them, by the names that the start says.", func(c *Config) *[]string { return &at(c).Accept }, name),
	}
	return k
}

// modelPrefix is what names of models may begin with.
var modelPrefix = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,31}$`)

// prefix accepts a prefix of names.
func prefix(s string) error {
	if s != "" && !modelPrefix.MatchString(s) {
		return fmt.Errorf("expected at most 32 letters, digits and _, not a digit first, got %s", quote(s))
	}
	return nil
}

// sourceAddress accepts the address of a database, or a reference to one. A password never stands in the configuration;
// an address that holds one is not repeated.
func sourceAddress(s string) error {
	kind, rest, ok := strings.Cut(s, ":")
	if !ok || rest == "" {
		return errors.New("expected sqlite:PATH, postgres://HOST/DATABASE, env:NAME or file:PATH")
	}
	switch kind {
	case "sqlite", "env", "file":
		return nil
	case "postgres", "postgresql":
		u, err := url.Parse(s)
		if err != nil {
			return errors.New("it is not a well-formed address")
		}
		if _, has := u.User.Password(); has || u.Query().Has("password") {
			return errors.New("a password never stands in the configuration: put the whole address into a variable or a file, and write env:NAME or file:PATH here")
		}
		return nil
	case "mysql", "mariadb", "mongodb", "mongodb+srv":
		return fmt.Errorf("%s is not served in this version; sqlite and postgres are", kind)
	}
	return errors.New("expected sqlite:PATH, postgres://HOST/DATABASE, env:NAME or file:PATH")
}

// need makes a field of a record one that must be there.
func need(k *key) *key {
	k.needed = true
	return k
}

// begun has a section count when it is empty.
func begun(k *key, begin func(*Config)) *key {
	k.begin = begin
	return k
}

// addressOrNone accepts an address or "none".
func addressOrNone(s string) error {
	if s == "none" {
		return nil
	}
	return address(s)
}

// local, firstKey and policy give a part that is nil until one of its keys is set.
func (c *Config) local() *Local {
	if c.Auth.Local == nil {
		c.Auth.Local = &Local{}
	}
	return c.Auth.Local
}

func (c *Config) firstKey() *FirstKey {
	if c.Auth.FirstKey == nil {
		c.Auth.FirstKey = &FirstKey{}
	}
	return c.Auth.FirstKey
}

func (c *Config) models() *Models {
	if c.Models == nil {
		c.Models = DefaultModels()
	}
	return c.Models
}

func (c *Config) policy() *policy.Config {
	if c.Policy == nil {
		c.Policy = &policy.Config{}
	}
	return c.Policy
}

// storing replaces what a leaf does with its texts.
func (k *key) storing(set func(c *Config, texts []string)) *key {
	check := k.set
	k.set = func(c *Config, texts []string) error {
		if err := check(c, texts); err != nil {
			return err
		}
		set(c, texts)
		return nil
	}
	return k
}
