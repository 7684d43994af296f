package model_test

import (
	"encoding/base64"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/model"
)

// value reads a value of a test; large integers are what it is about.
func value(t *testing.T, text string) canonjson.Value {
	t.Helper()
	v, _, err := canonjson.Parse([]byte(text), canonjson.Limits{})
	if err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return v
}

// refused stands for a value that does not fit.
const refused = "refused"

// TestCoerce is what fits each type, and in which form (sections 2.2, 2.9 and 6.2).
func TestCoerce(t *testing.T) {
	for _, tt := range []struct {
		types string
		in    string
		want  string
	}{
		{"int long date", `5`, `5`},
		{"int long date", `5.0`, `5`},
		{"int long date", `1e2`, `100`},
		{"int long date", `"100"`, `100`},
		{"int long date", `-0`, `0`},
		{"int long date", `9007199254740993`, `9007199254740993`},
		{"int long date", `"9007199254740993"`, `9007199254740993`},
		{"int long date", `9223372036854775807`, `9223372036854775807`},
		{"int long date", `"-9223372036854775808"`, `-9223372036854775808`},
		{"int long date", `9223372036854775808`, refused},
		{"int long date", `5.5`, refused},
		{"int long date", `1e400`, refused},
		{"int long date", `1e9999`, refused},
		{"int long date", `1e-9999`, refused},
		{"int long date", `50e-1`, `5`},
		{"int long date", `1e-400`, refused},
		{"int long date float double number", `""`, refused},
		{"int long date float double number", `"five"`, refused},
		{"int long date float double number", `"0x10"`, refused},
		{"int long date float double number", `"NaN"`, refused},
		{"int long date float double number", `"1_000"`, refused},
		{"int long date float double number", `true`, refused},
		{"int long date float double number", `[1]`, refused},
		{"float double number", `1.5`, `1.5`},
		{"float double number", `"1.5"`, `1.5`},
		{"float double number", `"100"`, `100`},
		{"float double number", `1e400`, refused},
		{"float double number", `"-Infinity"`, refused},
		{"boolean", `true`, `true`},
		{"boolean", `0`, `false`},
		{"boolean", `1`, `true`},
		{"boolean", `"true"`, `true`},
		{"boolean", `2`, refused},
		{"boolean", `"yes"`, refused},
		{"string", `"x"`, `"x"`},
		{"string", `""`, `""`},
		{"string", `5`, refused},
		{"string", `{"$gt":1}`, refused},
		{"decimal", `"12.50"`, `"12.5"`},
		{"decimal", `12.50`, `"12.5"`},
		{"decimal", `"-0.00"`, `"0"`},
		{"decimal", `1e-3`, `"0.001"`},
		{"decimal", `1e3`, `"1000"`},
		{"decimal", `"123456789012345678901234567890.123456789"`, `"123456789012345678901234567890.123456789"`},
		{"decimal", `"1e9999"`, refused},
		{"decimal", `"12,5"`, refused},
		{"timestamp", `"2042-06-01T08:30:00Z"`, `"2042-06-01T08:30:00Z"`},
		{"timestamp", `"2042-06-01T10:30:00.120+02:00"`, `"2042-06-01T08:30:00.12Z"`},
		{"timestamp", `"2042-06-01"`, refused},
		{"timestamp", `"0000-06-01T08:30:00Z"`, refused},
		{"timestamp", `2042`, refused},
		{"day", `"2042-06-01"`, `"2042-06-01"`},
		{"day", `"2042-02-30"`, refused},
		{"day", `"0000-01-01"`, refused},
		{"uuid", `"123E4567-E89B-12D3-A456-426614174000"`, `"123e4567-e89b-12d3-a456-426614174000"`},
		{"uuid", `"123e4567"`, refused},
		{"bytes", `"aGk="`, `"aGk="`},
		{"bytes", `"aGk"`, refused},
		{"bytes", `"aGl="`, refused},
		{"array", `[1,null]`, `[1,null]`},
		{"array", `{}`, refused},
		{"object", `{"a":1}`, `{"a":1}`},
		{"object", `"{}"`, refused},
		{"any", `[{"a":1}]`, `[{"a":1}]`},
	} {
		for kind := range strings.SplitSeq(tt.types, " ") {
			got, err := model.Coerce(model.Type(kind), value(t, tt.in))
			said := got.String()
			if err != nil {
				said = refused
			}
			if said != tt.want {
				t.Errorf("%s of %s: %s (%v), want %s", kind, tt.in, said, err, tt.want)
			}
		}
	}
}

// TestBytesAreBounded takes 64 KiB and no byte more.
func TestBytesAreBounded(t *testing.T) {
	for n, fits := range map[int]bool{64 << 10: true, 64<<10 + 1: false, 1 << 20: false} {
		v := canonjson.String(base64.StdEncoding.EncodeToString(make([]byte, n)))
		if _, err := model.Coerce(model.Bytes, v); (err == nil) != fits {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
}

// TestCoerceIntegers keeps every integer, in every spelling.
func TestCoerceIntegers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Int64().Draw(t, "n")
		want := canonjson.Exact(n).Literal()
		for _, v := range []canonjson.Value{canonjson.Exact(n), canonjson.String(want)} {
			got, err := model.Coerce(model.Long, v)
			if err != nil || got.Literal() != want {
				t.Fatalf("%s: %s, %v", want, got, err)
			}
			again, err := model.Coerce(model.Long, got)
			if err != nil || again.Literal() != want {
				t.Fatalf("%s: not the same when coerced again", want)
			}
		}
	})
}

// TestFit is what may be stored.
func TestFit(t *testing.T) {
	r := register(t, `{"name":"A","fields":{"n":{"type":"int","required":true},"s":{"type":"string","enum":["x","y"]},"big":{"type":"long","enum":["9007199254740993"]},
		"o":{"type":"object","fields":{"a":{"type":"int","required":true},"b":{"type":"object","fields":{"c":"boolean"}}}}}}`)
	for _, tt := range []struct{ field, in, want string }{
		{"n", `"7"`, `7`},
		{"n", `null`, "required"},
		{"s", `"x"`, `"x"`},
		{"s", `null`, `null`},
		{"s", `"z"`, `one of "x", "y"`},
		{"big", `9007199254740993`, `9007199254740993`},
		{"big", `9007199254740992`, "one of"},
		{"o", `{"a":"1","z":[],"b":{"c":0}}`, `{"a":1,"z":[],"b":{"c":false}}`},
		{"o", `{"b":{}}`, "a is required"},
		{"o", `{"a":null}`, "a is required"},
		{"o", `{"a":1,"b":{"c":5}}`, "b c takes true or false"},
		{"o", `[]`, "object"},
	} {
		got, err := model.Fit(r.Get("A").Field(tt.field), value(t, tt.in))
		switch {
		case err != nil && !strings.Contains(err.Error(), tt.want):
			t.Errorf("%s of %s: %v, want %s", tt.field, tt.in, err, tt.want)
		case err == nil && got.String() != tt.want:
			t.Errorf("%s of %s: %s, want %s", tt.field, tt.in, got, tt.want)
		}
	}
}

// TestCoerceRepeatsLittle bounds what a message shows of a value (security requirements, S47).
func TestCoerceRepeatsLittle(t *testing.T) {
	for _, text := range []string{`"` + strings.Repeat("x", 5000) + `"`, strings.Repeat("9", 5000), `[` + strings.Repeat("1,", 5000) + `1]`} {
		_, err := model.Coerce(model.Int, value(t, text))
		if err == nil || len(err.Error()) > 200 {
			t.Errorf("%.20s: %v", text, err)
		}
	}
	if _, err := model.Coerce(model.Int, canonjson.String("a\u202eb\x1b")); err == nil || strings.ContainsAny(err.Error(), "\u202e\x1b") {
		t.Error(err)
	}
}

// FuzzFit stores anything in a field of every type: it is refused, or it is a value that fits again and stays the same.
func FuzzFit(f *testing.F) {
	for _, s := range []string{`1`, `"1e400"`, `{"a":{"a":1}}`, `[null]`, `"2042-06-01T08:30:60Z"`, `"12.50"`, `1E+2`, `{"a":1,"a":2}`} {
		f.Add([]byte(s))
	}
	types := []model.Type{model.String, model.Int, model.Long, model.Float, model.Double, model.Number, model.Boolean, model.Date, model.Array, model.Object,
		model.Any, model.Decimal, model.Timestamp, model.Day, model.UUID, model.Bytes}
	f.Fuzz(func(t *testing.T, text []byte) {
		v, _, err := canonjson.Parse(text, canonjson.Limits{})
		if err != nil {
			return
		}
		for _, kind := range types {
			field := &model.Field{Name: "f", Type: kind}
			if kind == model.Object {
				field.Fields = []*model.Field{{Name: "a", Type: model.Int}}
			}
			got, err := model.Fit(field, v)
			if err != nil {
				continue
			}
			again, err := model.Fit(field, got)
			if err != nil || again.String() != got.String() {
				t.Fatalf("%s of %s: %s, then %s, %v", kind, text, got, again, err)
			}
		}
	})
}
