package sqlexec

import (
	"strconv"
	"strings"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/source/sqlgen"
	"github.com/tabellion-mcp/tabellion/model"
	"github.com/tabellion-mcp/tabellion/model/plan"
)

// decoder turns rows of one statement into rows of a plan.
type decoder struct {
	engine Engine
	sel    *sqlgen.Selection
	flaws  *[]flaw
	needle []string // of each cell: its name as __present lists it
	id     int      // the cell with _id; -1: none
}

// decoder makes one that notes flaws in r.
func (r *reader) decoder(sel *sqlgen.Selection) *decoder {
	return newDecoder(r.x.Engine, sel, &r.flaws)
}

// newDecoder makes one.
func newDecoder(e Engine, sel *sqlgen.Selection, flaws *[]flaw) *decoder {
	d := &decoder{engine: e, sel: sel, flaws: flaws, id: -1}
	for i, c := range sel.Cells {
		d.needle = append(d.needle, ","+c.Name+",")
		if c.Field != nil && c.Field == sel.Model.ID() {
			d.id = i
		}
	}
	return d
}

// row decodes one row, which belongs to a root row, and tells its size.
func (d *decoder) row(cells []any, root int) (plan.ReadRow, int64, error) {
	out := make([]canonjson.Value, len(d.sel.Cells))
	var bad []int
	size := int64(0)
	for i := range d.sel.Cells {
		v, ok, err := d.cell(i, cells)
		if err != nil {
			return plan.ReadRow{}, 0, err
		}
		if !ok {
			v, bad = canonjson.Null(), append(bad, i)
		}
		out[i] = v
		size += sizeOf(v)
	}
	for _, i := range bad {
		f := flaw{model: d.sel.Model.Name, field: d.sel.Cells[i].Name, root: root}
		if d.id >= 0 {
			f.key = out[d.id]
		}
		*d.flaws = append(*d.flaws, f)
	}
	return plan.ReadRow{Cells: out}, size, nil
}

// cell decodes one cell. An error is a sum that nothing can hold.
func (d *decoder) cell(i int, cells []any) (canonjson.Value, bool, error) {
	c := &d.sel.Cells[i]
	if c.Parts != nil {
		v, ok := d.composite(c, cells)
		return v, ok, nil
	}
	raw := cells[c.At]
	if raw == nil {
		return d.empty(i, cells), true, nil
	}
	v, ok := d.engine.Decode(c, raw)
	if !ok && c.Field == nil && c.Type == model.Long {
		return v, false, beyond(c.Name)
	}
	return v, ok, nil
}

// empty is a NULL: an explicit null where __present lists the field, else missing. In a group it is null.
func (d *decoder) empty(i int, cells []any) canonjson.Value {
	if d.sel.Cells[i].Field == nil {
		return canonjson.Null()
	}
	if at := d.sel.Present; at >= 0 && strings.Contains(asText(cells[at]), d.needle[i]) {
		return canonjson.Null()
	}
	return canonjson.Value{}
}

// composite is the _id of a key of several columns: the JSON array of their values as text (models, section 2.9).
func (d *decoder) composite(c *sqlgen.Cell, cells []any) (canonjson.Value, bool) {
	items := make([]canonjson.Value, len(c.Parts))
	for i := range c.Parts {
		part := &c.Parts[i]
		if cells[part.At] == nil {
			return canonjson.Value{}, true
		}
		v, ok := d.engine.Decode(part, cells[part.At])
		if !ok {
			return canonjson.Null(), false
		}
		items[i] = canonjson.String(plainText(v))
	}
	return canonjson.String(string(canonjson.Array(items...).AppendJSON(nil))), true
}

// plainText is a value as text: a string without quotes.
func plainText(v canonjson.Value) string {
	if v.Kind() == canonjson.KindString {
		return v.Str()
	}
	return string(v.AppendJSON(nil))
}

// sizeOf is about the length of v as JSON text.
func sizeOf(v canonjson.Value) int64 {
	switch v.Kind() {
	case canonjson.KindAbsent:
		return 0
	case canonjson.KindNull, canonjson.KindBool:
		return 5
	case canonjson.KindString:
		return int64(len(v.Str())) + 3
	case canonjson.KindNumber:
		return 8
	}
	return int64(len(v.AppendJSON(nil)))
}

// asInt reads a cell that this program knows to be an integer.
func asInt(cell any) (int64, bool) {
	switch c := cell.(type) {
	case int64:
		return c, true
	case string:
		n, err := strconv.ParseInt(c, 10, 64)
		return n, err == nil
	}
	return 0, false
}

// asText reads a cell that this program knows to be text; "" for NULL.
func asText(cell any) string {
	switch c := cell.(type) {
	case string:
		return c
	case []byte:
		return string(c)
	}
	return ""
}
