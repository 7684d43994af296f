package realdb_test

import (
	"database/sql"
	"fmt"
	"math/big"
	"regexp"
	"slices"
	"sort"
	"strings"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/model/engine"
)

// question is one query and the SQL that a person would write for it. The columns of the SQL are named after the path to
// the value in the answer; rows of a to-many relation are rows of the SQL. A column called drop is not compared.
type question struct{ name, gql, params, sql string }

// row is one row with its values by path, in one spelling for all engines. What is null or missing is not in it.
type row map[string]string

// server answers queries on one database.
type server struct {
	engine *engine.Engine
	call   engine.Call
}

// ask asks a question and flattens the answer.
func (s server) ask(t *testing.T, q question) []row {
	t.Helper()
	params, err := canonjson.ParseStrict([]byte(q.params), canonjson.Limits{})
	if err != nil {
		t.Fatalf("params: %v", err)
	}
	answer, err := s.engine.Query(t.Context(), s.call, q.gql, params, engine.Page{})
	if err != nil {
		t.Fatal(err)
	}
	if len(answer.Unrepresentable) > 0 || answer.More {
		t.Errorf("unrepresentable %v, more %v", answer.Unrepresentable, answer.More)
	}
	rows := []row{}
	for _, r := range answer.Rows {
		rows = append(rows, flatten(r, "")...)
	}
	return rows
}

// flatten makes rows of an object: members that are objects lend their path, each item of an array of objects is a row.
func flatten(v canonjson.Value, path string) []row {
	rows := []row{{}}
	for _, m := range v.Members() {
		var more []row
		switch {
		case m.Value.Kind() == canonjson.KindObject:
			more = flatten(m.Value, path+m.Name+".")
		case m.Value.Kind() == canonjson.KindArray && (m.Value.Len() == 0 || m.Value.Items()[0].Kind() == canonjson.KindObject):
			for _, item := range m.Value.Items() {
				more = append(more, flatten(item, path+m.Name+".")...)
			}
		default:
			if s := spell(m.Value); s != "" {
				more = []row{{path + m.Name: s}}
			}
		}
		rows = product(rows, more)
	}
	return rows
}

// product joins each row of a with each of b; with none of b the rows of a stay.
func product(a, b []row) []row {
	if len(b) == 0 {
		return a
	}
	var out []row
	for _, x := range a {
		for _, y := range b {
			joined := row{}
			for k, v := range x {
				joined[k] = v
			}
			for k, v := range y {
				joined[k] = v
			}
			out = append(out, joined)
		}
	}
	return out
}

// spell gives a JSON value the one spelling, "" for null.
func spell(v canonjson.Value) string {
	switch v.Kind() {
	case canonjson.KindString:
		return normal(v.Str())
	case canonjson.KindNumber:
		return normal(v.Literal())
	case canonjson.KindNull:
		return ""
	}
	return v.String()
}

// moment is a time at a full second or finer, in the spellings of JSON, PostgreSQL and SQLite.
var moment = regexp.MustCompile(`^(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(\.\d+)?(Z|\+00)?$`)

// significant is to how many digits numbers are compared: a sum of prices as binary numbers is not exact in the last ones.
const significant = 12

// normal gives numbers and times one spelling, and leaves other texts.
func normal(text string) string {
	if m := moment.FindStringSubmatch(text); m != nil {
		fraction := strings.TrimRight(strings.TrimRight(m[3], "0"), ".")
		if m[2] == "00:00:00" && fraction == "" {
			return m[1]
		}
		return m[1] + " " + m[2] + fraction
	}
	if text != "" && strings.Trim(text, "0123456789.+-eE") == "" {
		if f, _, err := big.ParseFloat(text, 10, 256, big.ToNearestEven); err == nil {
			return f.Text('g', significant)
		}
	}
	return strings.TrimRight(text, " ")
}

// answerSQLite asks SQLite by hand.
func answerSQLite(t *testing.T, db *sql.DB, statement string) []row {
	t.Helper()
	rows, err := db.Query(statement)
	if err != nil {
		t.Fatalf("%s\n%v", statement, err)
	}
	defer rows.Close()
	names, _ := rows.Columns()
	out := []row{}
	for rows.Next() {
		cells := make([]any, len(names))
		for i := range cells {
			cells[i] = new(any)
		}
		if err := rows.Scan(cells...); err != nil {
			t.Fatal(err)
		}
		r := row{}
		for i, name := range names {
			if v := *cells[i].(*any); v != nil && name != "drop" {
				r[name] = normal(strings.TrimSuffix(fmt.Sprint(v), " +0000 UTC"))
			}
		}
		out = append(out, r)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}

// answerPostgres asks PostgreSQL by hand.
func answerPostgres(t *testing.T, pool *pgxpool.Pool, statement string) []row {
	t.Helper()
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	results, err := conn.Conn().PgConn().Exec(t.Context(), statement).ReadAll()
	if err != nil {
		t.Fatalf("%s\n%v", statement, err)
	}
	const boolean = 16 // the type's number
	out := []row{}
	for _, cells := range results[0].Rows {
		r := row{}
		for i, f := range results[0].FieldDescriptions {
			text := normal(string(cells[i]))
			if f.DataTypeOID == boolean {
				text = map[string]string{"t": "true", "f": "false"}[text]
			}
			if cells[i] != nil && f.Name != "drop" {
				r[f.Name] = text
			}
		}
		out = append(out, r)
	}
	return out
}

// compare compares answers, order included.
func compare(t *testing.T, want, got []row) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%d rows, want %d (-want +got):\n%s", len(got), len(want), diff)
	}
}

// askAll asks all questions, in each of which the SQL must find rows but the one that is called so.
func askAll(t *testing.T, s server, questions []question, byHand func(*testing.T, string) []row) {
	t.Helper()
	for _, q := range questions {
		t.Run(q.name, func(t *testing.T) {
			want := byHand(t, q.sql)
			if (len(want) == 0) != (q.name == "no row") {
				t.Errorf("the SQL finds %d rows", len(want))
			}
			compare(t, want, s.ask(t, q))
		})
	}
}

// camelNames translates names that are written with underscores, as the PostgreSQL files have them, to those of the
// SQLite files: each word begins with a capital, and id is written as given. Words that are no names of the database stay.
func camelNames(names []string, id string, special map[string]string) func(string) string {
	translated := map[string]string{}
	for _, name := range names {
		var b strings.Builder
		for part := range strings.SplitSeq(name, "_") {
			if part == "id" {
				b.WriteString(id)
			} else if part != "" {
				b.WriteString(string(unicode.ToUpper(rune(part[0]))) + part[1:])
			}
		}
		translated[name] = b.String()
	}
	for name, other := range special {
		translated[name] = other
	}
	word := regexp.MustCompile(`[A-Za-z_][A-Za-z_0-9]*`)
	return func(text string) string {
		return word.ReplaceAllStringFunc(text, func(w string) string {
			if other, ok := translated[w]; ok {
				return other
			}
			return w
		})
	}
}

// namesOf are the names that definitions use for models, fields, relations and columns, but _id.
func namesOf(definitions []canonjson.Value) []string {
	seen := map[string]bool{}
	for _, d := range definitions {
		seen[d.Get("name").Str()] = true
		for _, m := range d.Get("fields").Members() {
			seen[m.Name] = true
			seen[m.Value.Get("column").Str()] = true
		}
		for _, m := range d.Get("relations").Members() {
			seen[m.Name] = true
		}
	}
	delete(seen, "_id")
	delete(seen, "")
	names := make([]string, 0, len(seen))
	for name := range seen {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

// isoTime is a time as JSON writes it, which the SQLite files keep as 2021-01-31 00:00:00.
var isoTime = regexp.MustCompile(`(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)Z`)

// translate puts questions into other names.
func translate(questions []question, names func(string) string, tables map[string]string) []question {
	out := slices.Clone(questions)
	for i := range out {
		q := &out[i]
		q.gql, q.sql = names(q.gql), names(q.sql)
		q.params = isoTime.ReplaceAllString(names(q.params), "$1 $2")
		for from, to := range tables {
			q.sql = regexp.MustCompile(`(FROM|JOIN) `+from+`\b`).ReplaceAllString(q.sql, "$1 "+to)
		}
	}
	return out
}
