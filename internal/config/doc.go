package config

import (
	"fmt"
	"strings"
)

// Markdown is docs/configuration.md.
func Markdown() []byte {
	var b strings.Builder
	b.WriteString(`# Configuration

This page is made from the code (` + "`go generate ./internal/config`" + `); a test fails when they differ.

` + "`tabellion serve --config tabellion.yaml`" + ` and most other commands read one YAML file. It is read strictly: an unknown
key, a key that stands twice, a wrong type or a value out of range is refused with its line and what is expected.
` + "`tabellion init`" + ` writes a commented file to begin with. Only ` + "`data`" + ` is needed.

* Each key can be overridden by the environment variable named beside it, and that by a flag: a flag of its own, or
  ` + "`--set KEY=VALUE`" + `. Lists are separated by commas there. Sections whose entries have names or numbers
  (` + "`policy.roles`, `policy.assignments`, `policy.denies`, `models.sources`" + `) can be set in the file only. A variable that begins with
  ` + "`TABELLION_`" + ` and names no key is refused, unless a reference to a secret names it.
* Paths in the file are taken from the file's folder, paths in variables and flags from the working folder.
* A secret never stands in the file. It is a reference, ` + "`env:NAME` or `file:path`" + `; a file that others than its owner may
  read is refused.
* A file has at most 256 KiB; aliases are expanded up to 50,000 values.

`)
	markdownSection(&b, root, "")
	return []byte(strings.TrimRight(b.String(), "\n") + "\n")
}

// markdownSection writes the leaves of a section as a table, then its sections.
func markdownSection(b *strings.Builder, k *key, path string) {
	var table, rest []*key
	for _, sub := range k.keys {
		switch {
		case sub.unserved != "":
		case sub.leaf():
			table = append(table, sub)
		default:
			rest = append(rest, sub)
		}
	}
	if len(table) > 0 {
		b.WriteString("| key | value | default | environment variable |\n|---|---|---|---|\n")
	}
	for _, leaf := range table {
		full := join(path, leaf.name)
		fmt.Fprintf(b, "| `%s` | %s | %s | `%s` |\n", full, leaf.kind, code(leaf.def), EnvName(full))
	}
	if len(table) > 0 {
		b.WriteByte('\n')
	}
	for _, leaf := range table {
		fmt.Fprintf(b, "* `%s`: %s\n", join(path, leaf.name), leaf.doc)
	}
	if len(table) > 0 {
		b.WriteByte('\n')
	}
	for _, sub := range rest {
		full := join(path, sub.name)
		fmt.Fprintf(b, "## %s\n\n%s\n\n", full, sub.doc)
		switch {
		case sub.records != nil:
			fields, _ := sub.records()
			for _, f := range fields {
				fmt.Fprintf(b, "* `%s`: %s %s\n", f.name, f.kind+".", f.doc)
			}
			b.WriteByte('\n')
		case sub.keys != nil:
			markdownSection(b, sub, full)
		}
	}
}

// code sets s as code, or a dash when it is empty.
func code(s string) string {
	if s == "" {
		return "-"
	}
	return "`" + s + "`"
}

// Template is the file that `tabellion init` writes: the given keys are set, every other key stands in a comment
// with its default.
func Template(name string) []byte {
	var b strings.Builder
	b.WriteString("# Configuration of tabellion. Every key is described in docs/configuration.md.\n" +
		"# A key in a comment shows its default, or an example.\n\n")
	set := map[string]string{
		"name": name, "data": "./data",
		"auth.keys": "true", "auth.local.subject": "me", "auth.local.roles": "[admin]",
	}
	for _, k := range root.keys {
		if k.unserved == "" {
			template(&b, k, k.name, "", set)
			b.WriteByte('\n')
		}
	}
	return []byte(strings.TrimRight(b.String(), "\n") + "\n")
}

// example stands where a key has no default.
var example = map[string]string{
	"hosts": "[data.example.org]", "origins": "[https://app.example.org]",
	"tls.cert": "./tls/cert.pem", "tls.key": "file:./tls/key.pem",
	"auth.pepper": "file:./pepper", "auth.first_key.user": "me", "auth.first_key.roles": "[admin]",
	"runtime.gc_percent": "400", "runtime.memory_limit": "256MiB",
}

// policyExample is the policy section of the template.
const policyExample = `  roles:
    reader: [persistence.read]
    writer: [persistence.read, persistence.write]
  assignments:
    - {subject: "user:ana", role: writer, on: /persistence/namespaces/explorer/**}
  denies:
    - {subject: "*", capabilities: [persistence.delete], on: /persistence/namespaces/ledger/**}
`

// template writes one key with its comment. base stands before every line: it holds the mark of a comment once a
// section is not set, so that taking the mark away from the whole section leaves a valid one.
func template(b *strings.Builder, k *key, path, base string, set map[string]string) {
	for _, line := range wrap(k.doc, 100-len(base)) {
		fmt.Fprintf(b, "%s# %s\n", base, line)
	}
	lead := base
	if !isSet(path, set) && !strings.Contains(base, "#") {
		lead += "# "
	}
	switch {
	case path == "policy":
		fmt.Fprintf(b, "%s%s:\n", lead, k.name)
		for line := range strings.Lines(policyExample) {
			b.WriteString(lead + line)
		}
	case path == "models":
		fmt.Fprintf(b, "%s%s:\n", lead, k.name)
		for line := range strings.Lines(modelsExample) {
			b.WriteString(lead + line)
		}
	case k.leaf():
		value := k.def
		for _, m := range []map[string]string{example, set} {
			if v, ok := m[path]; ok {
				value = v
			}
		}
		fmt.Fprintf(b, "%s%s: %s\n", lead, k.name, value)
	default:
		fmt.Fprintf(b, "%s%s:\n", lead, k.name)
		for _, sub := range k.keys {
			if sub.unserved == "" {
				template(b, sub, join(path, sub.name), lead+"  ", set)
			}
		}
	}
}

// isSet tells whether path or a key below it is set.
func isSet(path string, set map[string]string) bool {
	for p := range set {
		if p == path || strings.HasPrefix(p, path+".") {
			return true
		}
	}
	return false
}

// wrap breaks a text into lines of at most width characters.
func wrap(text string, width int) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && len(line)+1+len(word) > width {
			lines, line = append(lines, line), ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	if line != "" {
		lines = append(lines, line)
	}
	return lines
}

// modelsExample is the section models of the template.
const modelsExample = `  definitions: ./models
  sources:
    default: "sqlite:./app.db"
  surface: per-model
  only: []
  unconfigured: closed
  max_unindexed_rows: 100000
`
