package modeldiff_test

import (
	"encoding/base64"
	"encoding/hex"
	"slices"
	"strings"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/source/sqlgen"
	"github.com/tabellion-mcp/tabellion/internal/testkit/modelgen"
	"github.com/tabellion-mcp/tabellion/model"
	"github.com/tabellion-mcp/tabellion/model/eval"
)

// Tables are made by scripts of this file in one half of the worlds, and by our own DDL in the other. Rows are always
// written here and not by the code under test, so that a mistake in how that writes and reads cannot cancel out.

// columnTypes are the types of columns: SQLite, PostgreSQL.
var columnTypes = map[model.Type][2]string{
	model.String: {"TEXT", "TEXT"}, model.Int: {"INTEGER", "INTEGER"}, model.Long: {"INTEGER", "BIGINT"}, model.Date: {"INTEGER", "BIGINT"},
	model.Number: {"INTEGER", "BIGINT"}, model.Float: {"REAL", "DOUBLE PRECISION"}, model.Double: {"REAL", "DOUBLE PRECISION"},
	model.Boolean: {"INTEGER", "BOOLEAN"}, model.Array: {"TEXT", "JSONB"}, model.Object: {"TEXT", "JSONB"}, model.Any: {"TEXT", "JSONB"},
	model.Decimal: {"TEXT", "NUMERIC"}, model.Timestamp: {"TEXT", "TIMESTAMPTZ"}, model.Day: {"TEXT", "DATE"}, model.UUID: {"TEXT", "UUID"}, model.Bytes: {"BLOB", "BYTEA"},
}

// engines are the names of sources in the order of columnTypes.
var engines = []sqlgen.Engine{sqlgen.EngineSQLite, sqlgen.EnginePostgres}

// script creates the tables of a world and fills them. engine is 0 for SQLite, 1 for PostgreSQL.
func (w *world) script(engine int) string {
	var b strings.Builder
	if w.seed%2 == 1 {
		b.WriteString(strings.Join(sqlgen.DDL(engines[engine], w.served()), "\n"))
	} else {
		for _, m := range w.Models {
			b.WriteString(createTable(m, engine))
		}
	}
	for _, m := range w.Models {
		for _, row := range w.Data[m.Name].Rows {
			b.WriteString(insert(m, row, engine))
		}
	}
	return b.String()
}

// quote writes an identifier.
func quote(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// fields are all fields, _id first.
func fields(m *modelgen.Model) []*modelgen.Field {
	if m.ID == nil {
		return m.Fields
	}
	return append([]*modelgen.Field{m.ID}, m.Fields...)
}

// createTable writes CREATE TABLE, and the index.
func createTable(m *modelgen.Model, engine int) string {
	var lines, key []string
	for _, f := range fields(m) {
		line := quote(f.Column) + " " + columnTypes[f.Type][engine]
		if f.Full {
			line += " NOT NULL"
			key = append(key, quote(f.Column))
		}
		lines = append(lines, line)
	}
	if !m.Ordinary {
		lines = append(lines, `"__present" TEXT`)
	}
	if key != nil {
		lines = append(lines, "PRIMARY KEY ("+strings.Join(key, ", ")+")")
	}
	text := "CREATE TABLE " + quote(m.Table) + " (\n  " + strings.Join(lines, ",\n  ") + "\n);\n"
	if m.Index != "" {
		i := slices.IndexFunc(m.Fields, func(f *modelgen.Field) bool { return f.Name == m.Index })
		text += "CREATE INDEX " + quote("idx "+m.Table) + " ON " + quote(m.Table) + " (" + quote(m.Fields[i].Column) + ");\n"
	}
	return text
}

// insert writes one row.
func insert(m *modelgen.Model, row eval.Row, engine int) string {
	var columns, values, stored []string
	for _, f := range fields(m) {
		v := row[f.Name]
		if v.IsAbsent() {
			continue
		}
		columns, values, stored = append(columns, quote(f.Column)), append(values, literal(f.Type, v, engine)), append(stored, f.Name)
	}
	if !m.Ordinary {
		slices.Sort(stored)
		columns, values = append(columns, `"__present"`), append(values, text(","+strings.Join(stored, ",")+","))
	}
	return "INSERT INTO " + quote(m.Table) + " (" + strings.Join(columns, ", ") + ") VALUES (" + strings.Join(values, ", ") + ");\n"
}

// text writes a text literal.
func text(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

// literal writes a value of a type.
func literal(t model.Type, v canonjson.Value, engine int) string {
	switch {
	case v.Kind() == canonjson.KindNull:
		return "NULL"
	case t.JSON():
		return text(v.String())
	case t == model.Bytes:
		return bytesLiteral(v.Str(), engine)
	case v.Kind() == canonjson.KindBool && engine == 0:
		if v.Bool() {
			return "1"
		}
		return "0"
	case v.Kind() == canonjson.KindString:
		return text(v.Str())
	}
	return v.String()
}

// bytesLiteral writes bytes that JSON has in base64.
func bytesLiteral(s string, engine int) string {
	b, err := base64.StdEncoding.DecodeString(s)
	if err != nil {
		panic(err)
	}
	if engine == 0 {
		return "X'" + hex.EncodeToString(b) + "'"
	}
	return `'\x` + hex.EncodeToString(b) + "'"
}
