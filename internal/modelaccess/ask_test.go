//go:build unix

package modelaccess_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/modelaccess/site"
	"github.com/tabellion-mcp/tabellion/model"
	"github.com/tabellion-mcp/tabellion/model/engine"
)

// ask is one reading question, which every surface can be asked. Conditions and the like are JSON; "" is none.
type ask struct {
	model, condition, sort, group, block string
	limit                                int
}

// text is the query from the model's name on, without the name, and its parameters.
func (q ask) text() (rest, params string) {
	var args, values []string
	for _, a := range []struct{ name, json string }{{"condition", q.condition}, {"sort", q.sort}, {"group", q.group}} {
		if a.json != "" {
			args = append(args, "$"+a.name+": @"+a.name)
			values = append(values, `"`+a.name+`":`+a.json)
		}
	}
	if len(args) > 0 {
		rest = "(" + strings.Join(args, ", ") + ")"
	}
	return rest + " " + q.block, "{" + strings.Join(values, ",") + "}"
}

// said is what a surface answered.
type said struct {
	surface string
	site.Answer
}

// ask asks every surface: the engine, the tool query, list_X, and list of the generic surface.
func (w *world) ask(t *testing.T, who site.Who, q ask) []said {
	t.Helper()
	rest, params := q.text()
	a, err := w.perModel.Engine.Query(t.Context(), w.perModel.As(who), q.model+rest, site.JSON(t, params), engine.Page{Limit: int64(q.limit)})
	out := []said{{"engine", fromEngine(rowsOf(a), err)}}
	if who.Nobody {
		return out
	}
	page := ""
	if q.limit > 0 {
		page = fmt.Sprintf(`,"limit":%d`, q.limit)
	} else {
		out = append(out, said{"query", w.perModel.Call(t, who, "query", `{"gql":`+site.Quote(q.model+rest)+`,"params":`+params+`}`)})
	}
	if !strings.HasSuffix(q.model, "Deleted") { // archives have no tools
		out = append(out, said{"list_" + q.model, w.perModel.Call(t, who, "list_"+q.model, `{"q":`+site.Quote(rest)+`,"params":`+params+page+`}`)})
	}
	if q.group == "" {
		args := `{"model":"` + q.model + `"`
		for name, v := range map[string]string{"condition": q.condition, "sort": q.sort} {
			if v != "" {
				args += `,"` + name + `":` + v
			}
		}
		block := strings.TrimSuffix(strings.TrimPrefix(q.block, "{"), "}")
		out = append(out, said{"generic list", w.generic.Call(t, who, "model_list", args+`,"select":`+site.Quote(block)+page+`}`)})
	}
	return out
}

// rowsOf is an engine's answer in the form of a tool's.
func rowsOf(a *engine.Answer) canonjson.Value {
	if a == nil {
		return canonjson.Value{}
	}
	m := []canonjson.Member{canonjson.M("rows", canonjson.Array(a.Rows...))}
	if a.Next != nil {
		m = append(m, canonjson.M("next_cursor", a.Next.Value()))
	}
	return canonjson.Object(m...)
}

// fromEngine is an engine's answer as one of a tool.
func fromEngine(v canonjson.Value, err error) site.Answer {
	if err == nil {
		return site.Answer{OK: true, Value: v, Said: v.String()}
	}
	var e *model.Error
	if !errors.As(err, &e) {
		return site.Answer{Code: "-", Message: err.Error(), Said: err.Error()}
	}
	return site.Answer{Code: string(e.Class), Message: e.Error(), Said: e.Error()}
}

// refusal says what a refusal tells: "unknown" when the very same is said where the thing does not exist, or "denied".
func refusal(a, bare site.Answer) string {
	alike := !bare.OK && bare.Message == a.Message && bare.Message != ""
	denied := strings.HasPrefix(a.Message, "ERR_PERMISSION:") || a.Code == "permissionDenied"
	switch {
	case alike:
		return "unknown"
	case denied:
		return "denied"
	}
	return "error " + a.Code + " " + a.Message
}

// verdicts asks every surface and gives each one's verdict. ok judges a success.
func (w *world) verdicts(t *testing.T, who site.Who, on string, q ask, ok func(site.Answer) string) map[string]string {
	t.Helper()
	out := map[string]string{}
	var bare []said
	for _, a := range w.ask(t, who, q) {
		if a.OK {
			out[a.surface] = ok(a.Answer)
			continue
		}
		if bare == nil {
			bare = w.withoutIt(t, on).ask(t, who, q)
		}
		other := site.Answer{}
		for _, b := range bare {
			if b.surface == a.surface {
				other = b.Answer
			}
		}
		out[a.surface] = refusal(a.Answer, other)
	}
	return out
}

// withoutIt is the world in which what a cell is about does not exist.
func (w *world) withoutIt(t *testing.T, on string) *world {
	t.Helper()
	return w.bare.of(t, w.config, on)
}
