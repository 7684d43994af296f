package config

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// envPrefix begins the names of the environment variables that override keys.
const envPrefix = "TABELLION_"

// Source says where a configuration comes from. Set wins over Environ, Environ over File.
type Source struct {
	File    string   // "" is no file
	Environ []string // NAME=value, as os.Environ gives them
	Set     []Setting
	Dev     bool          // Config.Dev
	Begin   func(*Config) // changes the defaults before anything is read; nil for none
}

// Setting is one key that was given on the command line.
type Setting struct {
	Key, Value string
	Flag       string // how it was given, for messages: "--listen"
}

// Load reads a configuration and checks it. Its error is a Problems with everything that is wrong, or an error of
// reading the file. Paths in the file are taken from the file's folder, paths in variables and flags from the working
// folder.
func Load(src Source) (*Config, error) {
	d := &decoder{c: Default()}
	d.c.Dev = src.Dev
	if src.Begin != nil {
		src.Begin(d.c)
	}
	if src.File != "" {
		if err := d.file(src.File); err != nil {
			return nil, err
		}
		d.anchor(filepath.Dir(src.File))
	}
	for _, s := range src.Environ {
		d.variable(s)
	}
	for _, s := range src.Set {
		d.setting(s)
	}
	if err := d.problems.sorted(); err != nil {
		return nil, err
	}
	d.anchor(".")
	for _, s := range src.Environ {
		d.stray(s)
	}
	if err := d.problems.sorted(); err != nil {
		return nil, err
	}
	if err := d.c.Check(); err != nil {
		return nil, err
	}
	return d.c, nil
}

// decoder fills a configuration and gathers what is wrong.
type decoder struct {
	c        *Config
	problems Problems
}

// complain records a problem.
func (d *decoder) complain(at origin, key, format string, args ...any) {
	d.problems = append(d.problems, Problem{at, key, fmt.Sprintf(format, args...)})
}

// file reads the configuration file.
func (d *decoder) file(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("read configuration: %w", err)
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err != nil {
		return fmt.Errorf("read configuration: %w", err)
	}
	n, err := parse(path, content)
	if err != nil {
		return err
	}
	d.section(root, "", n)
	return nil
}

// section fills a section from n.
func (d *decoder) section(k *key, path string, n node) {
	if n.kind == kindNull {
		return // a section whose keys are all commented out
	}
	if n.kind != kindMap {
		d.complain(n.at, path, "expected a section with keys, got %s", n.kind)
		return
	}
	for _, m := range n.members {
		d.member(k, path, m)
	}
}

// member fills one key of a section.
func (d *decoder) member(parent *key, path string, m member) {
	full := join(path, m.name)
	var k *key
	if parent.entries != nil {
		if err := name(m.name); err != nil {
			d.complain(m.at, full, "%v", err)
			return
		}
		k = parent.entries(d.c, m.name)
	} else if k = parent.find(m.name); k == nil {
		d.complain(m.at, "", "unknown key %q%s", full, d.hint(parent, path, m.name))
		return
	}
	if k.unserved != "" {
		d.complain(m.at, full, "this version does not serve it: %s", k.unserved)
		return
	}
	d.c.origins[full] = m.at
	if k.begin != nil {
		k.begin(d.c)
	}
	switch {
	case k.leaf() && len(k.keys) > 0 && m.value.kind == kindMap: // one that may be written either way
		d.section(k, full, m.value)
	case k.leaf():
		d.leaf(k, full, m.value)
	case k.records != nil:
		d.records(k, full, m.value)
	default:
		d.section(k, full, m.value)
	}
}

// records fills a list of sections.
func (d *decoder) records(k *key, path string, n node) {
	if n.kind == kindNull {
		return
	}
	if n.kind != kindList {
		d.complain(n.at, path, "expected a list of sections, got %s", n.kind)
		return
	}
	for i, item := range n.items {
		at := fmt.Sprintf("%s[%d]", path, i)
		d.c.origins[at] = item.at
		fields, add := k.records()
		d.section(&key{keys: fields}, at, item)
		d.missing(fields, at, item)
		add(d.c)
	}
}

// missing complains about fields of a record that must be there.
func (d *decoder) missing(fields []*key, at string, n node) {
	if n.kind != kindMap {
		return // which was said
	}
	for _, f := range fields {
		if f.needed && !slices.ContainsFunc(n.members, func(m member) bool { return m.name == f.name }) {
			d.complain(n.at, at, "%s is missing: %s", f.name, f.doc)
		}
	}
}

// leaf fills a key that holds a value.
func (d *decoder) leaf(k *key, path string, n node) {
	if !slices.Contains(k.accepts, n.kind) {
		d.complain(n.at, path, "expected %s, got %s%s", k.kind, n.kind, quotes(k, n))
		return
	}
	texts := []string{n.text}
	if n.kind == kindList {
		texts = nil
		for _, item := range n.items {
			if item.kind != kindText {
				d.complain(item.at, path, "expected a text, got %s%s", item.kind, quotes(&key{accepts: []kind{kindText}}, item))
				return
			}
			texts = append(texts, item.text)
		}
	}
	if err := k.set(d.c, texts); err != nil {
		d.complain(n.at, path, "%v", err)
	}
}

// quotes proposes a text where YAML read something else: with the unit that the key needs, or in quotes when that would
// be taken.
func quotes(k *key, n node) string {
	switch {
	case n.text == "" || !slices.Contains(k.accepts, kindText):
		return ""
	case k.unit != "":
		return fmt.Sprintf("; write %s%s", n.text, k.unit)
	case k.set != nil && k.set(Default(), []string{n.text}) != nil:
		return ""
	}
	return fmt.Sprintf("; write %q if a text is meant", n.text)
}

// variable takes one environment variable that is a key's. See stray for others.
func (d *decoder) variable(s string) {
	name, value, _ := strings.Cut(s, "=")
	if !strings.HasPrefix(name, envPrefix) {
		return
	}
	for path, k := range leaves() {
		if EnvName(path) == name {
			d.override(k, path, value, origin{where: "environment variable " + name})
			return
		}
	}
}

// foreign are variables with our prefix that no configuration is meant by: what Kubernetes sets for a service of this
// name, what holds a client's key, and what the tests of this program set for it.
var foreign = regexp.MustCompile(`^TABELLION_(SERVICE_(HOST|PORT)|PORT)(_[A-Z0-9_]+)?$|^TABELLION_(API_KEY|BINARY|CACHE|EXTRA_FIXTURES|POWERCUT_SERVE|REAL|STORETEST_FAULT|WEAKEN|TEST_[A-Z0-9_]+)$`)

// stray refuses a variable with our prefix that sets nothing: a typing error would be silent otherwise. One that holds a
// secret of this configuration is none; so it comes last.
func (d *decoder) stray(s string) {
	name, _, _ := strings.Cut(s, "=")
	suffix, ok := strings.CutPrefix(name, envPrefix)
	if !ok || foreign.MatchString(name) || d.c.TLS.Key.names(name) || d.c.Auth.Pepper.names(name) || d.c.Models.names(name) {
		return
	}
	near, least := "", 1+len(suffix)/3
	for path := range leaves() {
		if EnvName(path) == name {
			return
		}
		if n := distance(name, EnvName(path)); n <= least {
			near, least = "; the nearest is "+EnvName(path), n-1
		}
	}
	at := origin{where: "environment variable " + name}
	for _, k := range root.keys {
		section := EnvName(k.name)
		switch {
		case k.unserved != "" && section == name:
			d.complain(at, k.name, "this version does not serve it: %s", k.unserved)
			return
		case !k.leaf() && (section == name || k.inFile(strings.TrimPrefix(name, section+"_"))):
			d.complain(at, "", "it is a section and can be set in a file only, key by key")
			return
		}
	}
	d.complain(at, "", "it names no key%s; variables that begin with %s set keys of the configuration", near, envPrefix)
}

// inFile tells whether the variable's rest names a part of the section that has no variable.
func (k *key) inFile(rest string) bool {
	for _, sub := range k.keys {
		if !sub.leaf() && strings.EqualFold(sub.name, rest) {
			return true
		}
	}
	return false
}

// EnvName is the environment variable that overrides a key: TABELLION_AUTH_KEYS for auth.keys.
func EnvName(path string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(path, ".", "_"))
}

// setting takes one key from the command line.
func (d *decoder) setting(s Setting) {
	at := origin{where: "flag " + s.Flag}
	parent, path := root, ""
	for part := range strings.SplitSeq(s.Key, ".") {
		k := parent.find(part)
		full := join(path, part)
		switch {
		case k == nil:
			d.complain(at, "", "unknown key %q%s", full, d.hint(parent, path, part))
			return
		case k.unserved != "":
			d.complain(at, full, "this version does not serve it: %s", k.unserved)
			return
		}
		parent, path = k, full
	}
	if !parent.leaf() {
		d.complain(at, path, "it is a section and can be set in a file only, key by key")
		return
	}
	d.override(parent, path, s.Value, at)
}

// override sets a leaf from a text.
func (d *decoder) override(k *key, path, value string, at origin) {
	texts := []string{value}
	if slices.Contains(k.accepts, kindList) {
		texts = nil
		for part := range strings.SplitSeq(value, ",") {
			if part = strings.TrimSpace(part); part != "" {
				texts = append(texts, part)
			}
		}
	}
	d.c.origins[path] = at
	if err := k.set(d.c, texts); err != nil {
		d.complain(at, path, "%v", err)
	}
}

// anchor makes relative paths absolute, from dir.
func (d *decoder) anchor(dir string) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		d.complain(origin{}, "", "find folder %s: %v", dir, err)
		return
	}
	for _, at := range []*string{&d.c.Data, &d.c.TLS.Cert} {
		if *at != "" && !filepath.IsAbs(*at) {
			*at = filepath.Join(abs, *at)
		}
	}
	d.c.Models.anchor(abs)
	d.c.TLS.Key = d.c.TLS.Key.under(abs)
	d.c.Auth.Pepper = d.c.Auth.Pepper.under(abs)
	if d.c.Transfer.Listen == "none" {
		d.c.Transfer.Listen = ""
	}
	if d.c.Ops == "none" {
		d.c.Ops = ""
	}
}

// anchor makes the relative paths of the section absolute, from dir. Nil has none.
func (m *Models) anchor(dir string) {
	if m == nil {
		return
	}
	for _, at := range []*string{&m.Definitions, &m.Policy} {
		if *at != "" && !filepath.IsAbs(*at) {
			*at = filepath.Join(dir, *at)
		}
	}
	for _, s := range m.Sources {
		s.Read, s.Write = under(s.Read, dir), under(s.Write, dir)
	}
}

// under takes the relative path of an address from dir.
func under(address, dir string) string {
	for _, scheme := range []string{"sqlite:", "file:"} {
		if path, ok := strings.CutPrefix(address, scheme); ok && path != "" && !filepath.IsAbs(path) {
			return scheme + filepath.Join(dir, path)
		}
	}
	return address
}

// names tells whether an address is read from the environment variable of this name.
func (m *Models) names(variable string) bool {
	if m == nil {
		return false
	}
	for _, s := range m.Sources {
		if s.Read == "env:"+variable || s.Write == "env:"+variable {
			return true
		}
	}
	return false
}

// find is the key of a section with this name, or nil.
func (k *key) find(name string) *key {
	for _, sub := range k.keys {
		if sub.name == name {
			return sub
		}
	}
	return nil
}

// join makes the full path of a key.
func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// errNoData is what a configuration without a data folder says.
var errNoData = errors.New("it is needed: the folder of the store")
