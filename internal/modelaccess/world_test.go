//go:build unix

package modelaccess_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/clock"
	"github.com/tabellion-mcp/tabellion/internal/modelaccess/site"
	"github.com/tabellion-mcp/tabellion/model"
	"github.com/tabellion-mcp/tabellion/model/tools"
	"github.com/tabellion-mcp/tabellion/policy"
)

// people are the callers, by the names that the rules use.
var people = map[string]site.Who{
	"lead":      {User: "lou", Roles: []string{"lead"}},
	"staff":     {User: "sam", Roles: []string{"staff"}},
	"trainee":   {User: "tia", Roles: []string{"trainee"}},
	"ana":       {User: "ana", Roles: []string{"user"}}, // owns notes
	"bo":        {User: "bo", Roles: []string{"user"}},  // owns a note
	"drifter":   {Roles: []string{"user"}},              // passes by creator, and it is not known who he is
	"guest":     {User: "gus", Roles: []string{"guest"}},
	"norole":    {User: "nil"},
	"analyst":   {User: "eve", Roles: []string{"analyst"}, Tenant: "eu"},
	"usa":       {User: "uri", Roles: []string{"analyst"}, Tenant: "us"},
	"stateless": {User: "kim", Roles: []string{"analyst"}}, // has no tenant
	"both":      {User: "pia", Roles: []string{"analyst", "lead"}, Tenant: "eu"},
	"admin":     {User: "adi", Roles: []string{"admin"}},
	"nobody":    {Nobody: true},
}

// sealed is the model that no caller has the server's right for, but admin.
const sealed = "Seal"

// rights are the server's policy: every caller may reach every model, and only admin the sealed one.
func rights(t testing.TB) policy.Decider {
	t.Helper()
	c := policy.Config{Roles: map[string][]string{"models": {string(policy.ModelsRead), string(policy.ModelsWrite)}}}
	c.Assignments = []policy.Assignment{{Subject: "*", Role: "models", On: "/models/**"}}
	for _, subject := range []string{"role:lead", "role:staff", "role:trainee", "role:user", "role:guest", "role:analyst", "user:nil"} {
		c.Denies = append(c.Denies, policy.Deny{Subject: subject, On: "/models/" + sealed})
	}
	p, err := policy.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// known is what the tools tell the engine of a caller and a model, written by hand.
func known(w site.Who, m *model.Model) bool {
	if m.Hidden || m.ArchiveOf != nil && m.ArchiveOf.Hidden {
		return false
	}
	return m.Name != sealed && m.Name != sealed+"Deleted" || w.User == "adi"
}

// read reads a file of testdata.
func read(t testing.TB, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// config is the world of the rules.
func config(t testing.TB) site.Config {
	t.Helper()
	return site.Config{Definitions: read(t, "models.json"), Seed: read(t, "seed.json"), Policy: read(t, "policy.json"), Rights: rights(t), Known: known,
		Clock: clock.NewManual(time.UnixMilli(1_700_000_000_000))} // two worlds are alike to the byte
}

// without is a text of definitions in which a model, or a part of one ("Worker.salary"), does not exist, nor anything that
// is made of it.
func without(t testing.TB, definitions, name string) string {
	t.Helper()
	gone, part, _ := strings.Cut(name, ".")
	var out []canonjson.Value
	for _, d := range site.JSON(t, definitions).Items() {
		if part == "" && d.Get("name").Str() == gone {
			continue
		}
		drop := map[string]bool{}
		if d.Get("name").Str() == gone {
			drop[part] = true
		}
		for _, r := range d.Get("relations").Members() {
			here, there := d.Get("name").Str(), r.Value.Get("model").Str()
			switch {
			case part == "" && there == gone:
				drop[r.Name] = true
			case here == gone && r.Value.Get("localField").Str() == part, there == gone && r.Value.Get("foreignField").Str() == part:
				drop[r.Name] = true
			}
		}
		targets := map[string]string{}
		for _, r := range d.Get("relations").Members() {
			targets[r.Name] = r.Value.Get("model").Str()
		}
		for _, c := range d.Get("computes").Members() {
			operand := c.Value.Get("agg").Members()[0].Value.Str()
			relation, field, _ := strings.Cut(operand, ".")
			if drop[relation] || targets[relation] == gone && field == part && field != "" {
				drop[c.Name] = true
			}
		}
		var members []canonjson.Member
		for _, m := range d.Members() {
			if slices.Contains([]string{"fields", "relations", "computes"}, m.Name) {
				var kept []canonjson.Member
				for _, k := range m.Value.Members() {
					if !drop[k.Name] {
						kept = append(kept, k)
					}
				}
				m = canonjson.M(m.Name, canonjson.Object(kept...))
			}
			members = append(members, m)
		}
		out = append(out, canonjson.Object(members...))
	}
	return canonjson.Array(out...).String()
}

// bare are worlds in which something does not exist, made when they are asked for. They are on SQLite and without rows:
// they are asked only for the words of refusals.
type bare struct {
	mu    sync.Mutex
	sites map[string]*world
}

// of gives the world without name.
func (b *bare) of(t *testing.T, like site.Config, name string) *world {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.sites == nil {
		b.sites = map[string]*world{}
	}
	key := name + fmt.Sprint(like.Unconfigured)
	if b.sites[key] == nil {
		c := config(t)
		c.Unconfigured = like.Unconfigured
		c.Definitions, c.Seed = without(t, c.Definitions, name), "{}"
		b.sites[key] = newWorld(t, site.SQLite(t), c)
	}
	return b.sites[key]
}

// world is one database with the two surfaces.
type world struct {
	config            site.Config
	perModel, generic *site.Site
	bare              *bare
	t                 *testing.T
}

// newWorld makes the tables, the rows and the surfaces.
func newWorld(t *testing.T, p *site.Place, c site.Config) *world {
	t.Helper()
	w := &world{config: c, bare: &bare{}, t: t}
	w.perModel = site.New(t, p, c)
	c.Tables, c.Seed, c.Surface = true, "", tools.Generic
	w.generic = site.New(t, p, c)
	return w
}
