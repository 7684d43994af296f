package main

import (
	"context"
	"os"
	"strings"
	"testing"
	"unicode/utf8"
)

// people are rows that a terminal has trouble with: long ones, wide ones, and some that it would obey.
const people = `CREATE TABLE people (_id TEXT PRIMARY KEY, name TEXT, note TEXT, tags TEXT);
INSERT INTO people VALUES
	('p1', 'Ada', 'a note that is far longer than any terminal is wide, because whoever wrote it had very much to say about it', NULL),
	('p2', '山田太郎山田太郎山田太郎山田太郎山田太郎山田太郎山田太郎', 'é' || char(0x65, 0x301) || 'é', NULL),
	('p3', char(27) || '[31mred' || char(27) || '[2J', 'two' || char(10) || 'lines' || char(0x202e) || 'back', NULL),
	('p4', '', NULL, NULL)`

// peopleModel is their definition.
const peopleModel = `{"name": "Person", "description": "Somebody", "table": "people", "archive": false, "timestamps": false,
	"fields": {"_id": "string", "name": {"type": "string", "required": true, "description": "As on the badge"}, "note": "string", "tags": "string"}}`

// onTTY runs a command on a terminal and gives the lines that it shows there.
func onTTY(t *testing.T, columns uint16, args ...string) []string {
	t.Helper()
	term := newTerminal(t, columns)
	env := &Env{Ctx: context.Background(), Signal: func() os.Signal { return nil }, Stdout: term.slave, Stderr: term.slave}
	code := run(env, args)
	shown := term.text()
	if code != exitFine {
		t.Fatalf("exit code %d: %s", code, shown)
	}
	return strings.Split(strings.TrimSuffix(strings.ReplaceAll(shown, "\r\n", "\n"), "\n"), "\n")
}

// TestTableOnATerminal: rows are columns that fit, and nothing in them reaches the terminal that it would obey.
func TestTableOnATerminal(t *testing.T) {
	db, models := makeSQLite(t, people), writeFile(t, "people.json", peopleModel)
	args := []string{"models", "query", "--models", models, "--source", "sqlite:" + db, "Person { name, note, tags }"}
	for _, columns := range []uint16{80, 60} {
		lines := onTTY(t, columns, args...)
		if len(lines) != 6 || !strings.HasPrefix(lines[0], "_id  name ") || lines[5] != "4 rows" {
			t.Fatalf("%d columns: shown\n%s", columns, strings.Join(lines, "\n"))
		}
		fits(t, lines, int(columns))
		has(t, strings.Join(lines, "\n"), `\x1b[31mred`, `two\nlines\u202eback`, "a note that is far", "…")
		at := strings.Index(lines[0], "note")
		if !strings.HasPrefix(lines[1][at:], "a note") {
			t.Errorf("%q does not stand under the name of its column", lines[1])
		}
	}
}

// TestRecordsOnATerminal: where columns have no room, each value has a line.
func TestRecordsOnATerminal(t *testing.T) {
	db, models := makeSQLite(t, people), writeFile(t, "people.json", peopleModel)
	lines := onTTY(t, 24, "models", "query", "--models", models, "--source", "sqlite:"+db, "Person { name, note, tags }")
	fits(t, lines, 24)
	if lines[0] != "_id   p1" || lines[1] != "name  Ada" || !strings.HasPrefix(lines[2], "note  a note that is") {
		t.Errorf("shown\n%s", strings.Join(lines, "\n"))
	}
}

// TestJSONOnATerminal: --json gives there what a pipe gets.
func TestJSONOnATerminal(t *testing.T) {
	db, models := makeSQLite(t, people), writeFile(t, "people.json", peopleModel)
	args := []string{"models", "query", "--models", models, "--source", "sqlite:" + db, "--limit", "1", "Person { name }"}
	piped, _ := runIn(t, exitFine, args...)
	if lines := onTTY(t, 80, append(args, "--json")...); lines[0]+"\n" != piped || piped != `{"rows":[{"_id":"p1","name":"Ada"}],"truncated":true}`+"\n" {
		t.Errorf("a terminal shows %q, a pipe %q", lines, piped)
	}
	if lines := onTTY(t, 80, args...); lines[len(lines)-1] != "1 row, and there are more" {
		t.Errorf("shown at the end: %q", lines[len(lines)-1])
	}
}

// TestDescribeOnATerminal shows a model for a person.
func TestDescribeOnATerminal(t *testing.T) {
	lines := onTTY(t, 80, "models", "describe", "--models", writeFile(t, "people.json", peopleModel))
	if lines[0] != "Person  Somebody" || !strings.HasPrefix(lines[2], "  name ") || !strings.HasSuffix(lines[2], "string     required; As on the badge") {
		t.Errorf("shown\n%s", strings.Join(lines, "\n"))
	}
}

// fits wants lines that are valid text of no more columns than the terminal has, without anything that it would obey.
func fits(t *testing.T, lines []string, columns int) {
	t.Helper()
	for _, line := range lines {
		if w := textWidth(line); w > columns || !utf8.ValidString(line) {
			t.Errorf("%q has %d columns", line, w)
		}
		if strings.ContainsFunc(line, func(r rune) bool { return r < ' ' || r == 0x202e }) {
			t.Errorf("%q holds what a terminal obeys", line)
		}
	}
}

// TestTextWidth counts columns of a terminal.
func TestTextWidth(t *testing.T) {
	for text, want := range map[string]int{"": 0, "abc": 3, "山田": 4, "e\u0301": 1, "é": 1, "ｆ": 2, "…": 1} {
		if got := textWidth(text); got != want {
			t.Errorf("%q has %d columns, want %d", text, got, want)
		}
	}
	for _, tt := range []struct {
		in    string
		width int
		want  string
	}{{"abc", 5, "abc  "}, {"abcdef", 4, "abc…"}, {"山田太", 5, "山田…"}, {"山田太", 4, "山… "}, {"abc", 3, "abc"}} {
		if got := fitText(tt.in, tt.width); got != tt.want {
			t.Errorf("%q in %d columns is %q, want %q", tt.in, tt.width, got, tt.want)
		}
	}
}
