package scenario

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
)

// Named is a scenario and the name that reports use: <file>/<id>.
type Named struct {
	Name     string
	Scenario *Scenario
}

// Collect reads the scenarios of files and folders, in this order; the files of a folder by name. A file that is named
// must hold scenarios; in a folder, files of other formats are left out, and one scenario at least must be there.
func Collect(paths []string) ([]Named, error) {
	var out []Named
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			return nil, err
		}
		files := map[string]*File{}
		if info.IsDir() {
			files, err = Load(path)
		} else {
			files[strings.TrimSuffix(filepath.Base(path), ".json")], err = LoadFile(path)
		}
		if err != nil {
			return nil, err
		}
		for _, name := range slices.Sorted(maps.Keys(files)) {
			for i := range files[name].Scenarios {
				s := &files[name].Scenarios[i]
				out = append(out, Named{Name: name + "/" + s.ID, Scenario: s})
			}
		}
	}
	return out, nil
}

// NeededHooks lists what the scenario needs beside callers: what it says itself, and what its steps are.
func (s *Scenario) NeededHooks() []string {
	found := map[string]bool{}
	for _, name := range s.Requires {
		found[name] = true
	}
	s.each(func(st *Step) {
		switch {
		case st.AdvanceSeconds != nil:
			found["clock"] = true
		case st.Restart == "kill":
			found["kill"] = true
		case st.Restart != "":
			found["restart"] = true
		case st.Fault != "":
			found["fault"] = true
		case st.CorruptBlob != "":
			found["corrupt"] = true
		}
	})
	return slices.Sorted(maps.Keys(found))
}

// each visits every step, inner ones too.
func (s *Scenario) each(visit func(*Step)) {
	var walk func([]Step)
	walk = func(steps []Step) {
		for i := range steps {
			visit(&steps[i])
			walk(steps[i].Parallel)
			if steps[i].Step != nil {
				walk([]Step{*steps[i].Step})
			}
		}
	}
	walk(s.Steps)
}

// Given is what is known of a server that is tested as it is.
type Given struct {
	Limits  map[string]int64 // of persistence.capabilities
	Callers []string         // those with a token
}

// Unmet lists what the scenario needs and the server has not, in words. It takes for granted that alice has the default
// grants and nobody else has any, and that the server keeps everything forever.
func (s *Scenario) Unmet(g Given) []string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(s.Setup.Limits)) {
		if want, got := s.Setup.Limits[name], g.Limits[name]; got != want {
			out = append(out, fmt.Sprintf("needs the limit %s %d, the server's is %d", name, want, got))
		}
	}
	if n := s.Setup.RetentionSeconds; n != nil {
		out = append(out, fmt.Sprintf("needs a retention of %d s", *n))
	}
	if s.Setup.Mode == "open" {
		out = append(out, "needs a server without authentication")
	}
	if s.Setup.HasGrants && s.Setup.Mode != "open" && !sameGrants(s.Setup.Grants, DefaultGrants()) {
		out = append(out, "needs other grants than the default")
	}
	for _, name := range s.Callers() {
		if !slices.Contains(g.Callers, name) {
			out = append(out, fmt.Sprintf("needs a token of %s", name))
		}
	}
	changes := false
	s.each(func(st *Step) { changes = changes || st.SetGrants != nil })
	if changes {
		out = append(out, "changes grants")
	}
	return out
}

// sameGrants compares grants; order means nothing.
func sameGrants(a, b []Grant) bool {
	return slices.Equal(plainGrants(a), plainGrants(b))
}

// plainGrants writes grants so that equal ones are equal.
func plainGrants(grants []Grant) []string {
	var out []string
	for _, g := range grants {
		c, e := slices.Clone(g.Capabilities), slices.Clone(g.Except)
		sort.Strings(c)
		sort.Strings(e)
		out = append(out, fmt.Sprintf("%q %q %q %q", g.As, c, g.Resource, e))
	}
	sort.Strings(out)
	return out
}

// Resolved is the setup with its defaults written out.
func (s Setup) Resolved() Setup {
	if s.Mode == "" {
		s.Mode = "policy"
	}
	if !s.HasGrants && s.Mode != "open" {
		s.Grants, s.HasGrants = DefaultGrants(), true
	}
	if s.Limits == nil {
		s.Limits = map[string]int64{}
	}
	if s.Grants == nil {
		s.Grants = []Grant{}
	}
	return s
}
