// Package scenario runs conformance scenarios for persistence.v1 that are written as data: JSON files of steps with
// expectations. A Target carries the steps to a server, in process or over a network; what a target cannot do
// (move a clock, kill a process) is a hook that it lacks, and scenarios that need it are reported as not run.
//
//	list, err := scenario.Collect([]string{"scenarios"})
//	for _, n := range list {
//		r := scenario.Runner{Target: target} // on an empty store with the setup of n.Scenario
//		if err := r.Run(ctx, n.Scenario); err != nil { ... n.Name ... }
//	}
//
// A server that others use has no empty store: Unmet tells what a scenario needs that it has not, and Rename moves the
// scenario to namespaces of its own.
package scenario

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
)

// Format is the format word of a scenario file.
const Format = "persistence-scenarios/1"

// File is one scenario file.
type File struct {
	Format    string     `json:"format"`
	Group     string     `json:"group"`
	Scenarios []Scenario `json:"scenarios"`
}

// Scenario is a sequence of steps on a fresh, empty store.
type Scenario struct {
	ID       string   `json:"id"`
	Title    string   `json:"title"`
	Basis    string   `json:"basis"` // contract or decision
	Rules    []string `json:"rules"`
	Requires []string `json:"requires"`
	Setup    Setup    `json:"setup"`
	Steps    []Step   `json:"steps"`
}

// Setup is what the store and the policy are before the first step.
type Setup struct {
	Limits           map[string]int64 `json:"limits"`
	RetentionSeconds *int64           `json:"retentionSeconds"`
	Mode             string           `json:"mode"` // policy (default) or open
	Grants           []Grant          `json:"grants"`
	HasGrants        bool             `json:"-"`
}

// UnmarshalJSON notes whether grants were given at all: absent means the default grants.
func (s *Setup) UnmarshalJSON(text []byte) error {
	type plain Setup
	if err := strict(text, (*plain)(s)); err != nil {
		return err
	}
	var m map[string]json.RawMessage
	if err := json.Unmarshal(text, &m); err != nil {
		return err
	}
	_, s.HasGrants = m["grants"]
	return nil
}

// Grant gives a caller capabilities on a resource.
type Grant struct {
	As           string   `json:"as"`
	Capabilities []string `json:"capabilities"`
	Resource     string   `json:"resource"`
	Except       []string `json:"except,omitempty"`
}

// DefaultGrants is what holds when setup names none.
func DefaultGrants() []Grant {
	return []Grant{{
		As:           "alice",
		Capabilities: []string{"persistence.read", "persistence.write", "persistence.delete", "persistence.admin"},
		Resource:     "/persistence/**",
	}}
}

// Step is one step; which members are set says which kind it is.
type Step struct {
	Tool         string            `json:"tool"`
	As           string            `json:"as"`
	Args         json.RawMessage   `json:"args"`
	RawArgs      *string           `json:"rawArgs"`
	Save         map[string]string `json:"save"`
	DropResponse bool              `json:"dropResponse"`
	Expect       json.RawMessage   `json:"expect"`

	HTTP           *HTTPStep `json:"http"`
	Resource       string    `json:"resource"`
	Parallel       []Step    `json:"parallel"`
	Pages          *Pages    `json:"pages"`
	Repeat         int       `json:"repeat"`
	Step           *Step     `json:"step"`
	AdvanceSeconds *float64  `json:"advanceSeconds"`
	Restart        string    `json:"restart"`
	SetGrants      *[]Grant  `json:"setGrants"`
	Tamper         string    `json:"tamper"`
	How            string    `json:"how"`
	Fault          string    `json:"fault"`
	CorruptBlob    string    `json:"corruptBlob"`
}

// UnmarshalJSON allows save to be one variable's name where a tampered cursor is saved.
func (s *Step) UnmarshalJSON(text []byte) error {
	type plain Step
	var aux struct {
		plain
		Save json.RawMessage `json:"save"`
	}
	if err := strict(text, &aux); err != nil {
		return err
	}
	*s = Step(aux.plain)
	if len(aux.Save) == 0 {
		return nil
	}
	var name string
	if json.Unmarshal(aux.Save, &name) == nil {
		s.Save = map[string]string{name: ""}
		return nil
	}
	return json.Unmarshal(aux.Save, &s.Save)
}

// Pages follows nextCursor to the end.
type Pages struct {
	Tool string          `json:"tool"`
	As   string          `json:"as"`
	Args json.RawMessage `json:"args"`
}

// strict decodes text and refuses unknown members.
func strict(text []byte, into any) error {
	d := json.NewDecoder(strings.NewReader(string(text)))
	d.DisallowUnknownFields()
	d.UseNumber()
	return d.Decode(into)
}

// Load reads every scenario file of a folder, by name. A folder without a scenario is an error.
func Load(dir string) (map[string]*File, error) {
	names, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, err
	}
	sort.Strings(names)
	out := map[string]*File{}
	for _, name := range names {
		f, err := LoadFile(name)
		switch {
		case errors.Is(err, errFormat):
		case err != nil:
			return nil, err
		case len(f.Scenarios) > 0:
			out[strings.TrimSuffix(filepath.Base(name), ".json")] = f
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s holds no scenario of format %s", dir, Format)
	}
	return out, nil
}

// errFormat: a file of another format.
var errFormat = errors.New("the file is not of format " + Format)

// LoadFile reads one scenario file.
func LoadFile(name string) (*File, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	var kind struct {
		Format string `json:"format"`
	}
	if err := json.Unmarshal(text, &kind); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Base(name), err)
	}
	if kind.Format != Format {
		return nil, fmt.Errorf("%s: %w", filepath.Base(name), errFormat)
	}
	var f File
	if err := strict(text, &f); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Base(name), err)
	}
	return &f, nil
}

// Answer is what came back from a tool call or a resource read.
type Answer struct {
	RPC        *RPCError
	IsError    bool
	Structured any    // decoded with json.Number
	Text       string // of the first block
	Broken     bool   // the connection ended without an answer
}

// RPCError is a JSON-RPC error.
type RPCError struct {
	Code    int
	Message string
	Data    any
}

// Target carries steps to a server.
type Target interface {
	// Call sends tools/call with the arguments' text unchanged.
	Call(ctx context.Context, as, tool string, args []byte) (Answer, error)
	// Read sends resources/read; Text holds the JSON of the first content.
	Read(ctx context.Context, as, uri string) (Answer, error)
	// HTTP sends a request to the transfer origin with the bearer of the caller; nobody's ("") carries no Authorization
	// header. Send does it over TCP.
	HTTP(ctx context.Context, as string, req HTTPRequest) (HTTPResponse, error)
}

// Hooks are what a target may be able to do besides. Nil: it cannot.
type Hooks struct {
	Advance   func(seconds float64)
	Restart   func(kill bool) error
	SetGrants func([]Grant) error
	Fault     func(name string) error
	// CorruptBlob changes stored bytes of an artifact behind the server's back. Steps name the artifact alone; the
	// namespace is that of the beginArtifact of the same scenario whose answer named it, "" when none did.
	CorruptBlob func(namespace, artifactID string) error
}
