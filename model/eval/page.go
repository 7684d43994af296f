package eval

import (
	"fmt"
	"math"
	"strconv"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/model/gql"
)

// Page sizes of queryWithCount (models, section 11.3).
const (
	defaultPage = 50
	maxPage     = 5000
)

// Page is the answer of queryWithCount.
type Page struct {
	Items          []canonjson.Value
	Total          int64
	HasMore        bool
	Page, PageSize int64
}

// QueryWithCount answers queryWithCount: one page of the rows, and how many there are in all.
func (e *Evaluator) QueryWithCount(q *gql.Bound, params canonjson.Value) (*Page, error) {
	m, err := e.model(q.Model)
	if err != nil {
		return nil, err
	}
	if !q.Values.Group.IsAbsent() {
		return nil, fmt.Errorf("groups are not counted")
	}
	p := &Page{}
	values := q.Values
	if err := p.size(&values, params); err != nil {
		return nil, err
	}
	b, err := e.block(m, values, q.Items, true)
	if err != nil {
		return nil, err
	}
	p.Total = int64(len(b.rows))
	p.HasMore = (p.Page+1)*p.PageSize < p.Total
	p.Items, err = b.show(b.window(b.rows))
	return p, err
}

// size settles the page, from page and pageSize if there is one of them, else from $skip and $limit, and the window. A
// $skip inside a page begins at the page (case r152 of the golden data).
func (p *Page) size(v *gql.Values, params canonjson.Value) error {
	page, size := params.Get("page"), params.Get("pageSize")
	if page.IsAbsent() && size.IsAbsent() {
		w, err := readWindow(v.Skip, v.Limit)
		if err != nil {
			return err
		}
		p.PageSize = defaultPage
		if w.limit >= 0 {
			p.PageSize = min(int64(w.limit), maxPage)
		}
		if w.limit > 0 {
			p.Page = int64(w.skip) / p.PageSize
			v.Skip = canonjson.Int(p.Page * p.PageSize)
		}
		v.Limit = canonjson.Int(p.PageSize)
		return nil
	}
	p.Page = whole(page, 0)
	p.PageSize = min(whole(size, defaultPage), maxPage)
	v.Skip, v.Limit = canonjson.Int(p.Page*p.PageSize), canonjson.Int(p.PageSize)
	return nil
}

// whole reads a number, or a string that spells one, as a whole number from 0 on.
func whole(v canonjson.Value, def int64) int64 {
	f := v.Float()
	switch v.Kind() {
	case canonjson.KindString:
		f, _ = strconv.ParseFloat(v.Str(), 64)
	case canonjson.KindNumber:
	default:
		return def
	}
	return int64(math.Floor(max(0, f)))
}
