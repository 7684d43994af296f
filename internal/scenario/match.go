package scenario

import (
	"encoding/json"
	"fmt"
	"math/big"
	"reflect"
	"regexp"
	"strings"
	"time"
)

// expectation is what a step may expect.
type expectation struct {
	StructuredContent *json.RawMessage  `json:"structuredContent"`
	Error             string            `json:"error"`
	RPCError          int               `json:"rpcError"`
	JSON              *json.RawMessage  `json:"json"`
	RawPayload        *string           `json:"rawPayload"`
	AnyOf             []json.RawMessage `json:"anyOf"`
	Broken            bool              `json:"broken"`
}

// expect checks a tool's answer.
func (r *Runner) expect(tool string, text json.RawMessage, a Answer, vars map[string]any) error {
	var e expectation
	if err := strict(text, &e); err != nil {
		return fmt.Errorf("expectation %s: %w", text, err)
	}
	switch {
	case e.AnyOf != nil:
		var problems []string
		for _, option := range e.AnyOf {
			err := r.expect(tool, option, a, vars)
			if err == nil {
				return nil
			}
			problems = append(problems, err.Error())
		}
		return fmt.Errorf("none of: %s", strings.Join(problems, " | "))
	case e.Error != "":
		return expectError(e.Error, a)
	case e.RPCError != 0:
		if a.RPC == nil || a.RPC.Code != e.RPCError {
			return fmt.Errorf("want JSON-RPC error %d, got %s", e.RPCError, a)
		}
		return nil
	}
	if err := r.success(tool, a); err != nil {
		return err
	}
	if e.RawPayload != nil {
		return expectPayload(*e.RawPayload, a, vars)
	}
	if e.StructuredContent == nil {
		return fmt.Errorf("expectation without a kind: %s", text)
	}
	return matchText(*e.StructuredContent, a.Structured, vars)
}

// String shows an answer in a message.
func (a Answer) String() string {
	switch {
	case a.Broken:
		return "a broken connection"
	case a.RPC != nil:
		return fmt.Sprintf("JSON-RPC error %d %q %v", a.RPC.Code, a.RPC.Message, a.RPC.Data)
	}
	text, _ := encode(a.Structured)
	if len(text) > 400 {
		text = append(text[:400], "..."...)
	}
	return fmt.Sprintf("isError=%t %s", a.IsError, text)
}

// success checks what every success keeps: no error, the text is the same JSON, the output schema fits.
func (r *Runner) success(tool string, a Answer) error {
	if a.RPC != nil || a.IsError || a.Broken {
		return fmt.Errorf("want success, got %s", a)
	}
	text, err := decode([]byte(a.Text))
	if err != nil {
		return fmt.Errorf("content[0].text: %w", err)
	}
	if !equal(text, a.Structured) {
		return fmt.Errorf("content[0].text differs from structuredContent")
	}
	if schema := r.Outputs[tool]; schema != nil {
		if err := schema.Validate(a.Structured); err != nil {
			return fmt.Errorf("outputSchema: %w", err)
		}
	}
	return nil
}

// expectError checks the error envelope: exactly code and message, and the same JSON as text.
func expectError(code string, a Answer) error {
	if a.RPC != nil || !a.IsError {
		return fmt.Errorf("want error %s, got %s", code, a)
	}
	m, ok := a.Structured.(map[string]any)
	inner, ok2 := m["error"].(map[string]any)
	if !ok || !ok2 || len(m) != 1 || len(inner) != 2 {
		return fmt.Errorf("the error is not {error:{code,message}}: %s", a)
	}
	if inner["code"] != code {
		return fmt.Errorf("want error %s, got %s", code, a)
	}
	if message, ok := inner["message"].(string); !ok || message == "" {
		return fmt.Errorf("the error has no message: %s", a)
	}
	text, err := decode([]byte(a.Text))
	if err != nil || !equal(text, a.Structured) {
		return fmt.Errorf("content[0].text of the error differs from structuredContent")
	}
	return nil
}

// expectResource checks the answer of a resource read.
func (r *Runner) expectResource(text json.RawMessage, a Answer, vars map[string]any) error {
	var e expectation
	if err := strict(text, &e); err != nil {
		return err
	}
	switch {
	case e.Error != "":
		if a.RPC == nil {
			return fmt.Errorf("want error %s, got %s", e.Error, a.Text)
		}
		if code, _ := at(a.RPC.Data, "/error/code"); code != e.Error {
			return fmt.Errorf("want error %s in data, got %s", e.Error, a)
		}
		return nil
	case a.RPC != nil:
		return fmt.Errorf("want content, got %s", a)
	case e.JSON == nil:
		return fmt.Errorf("expectation without a kind: %s", text)
	}
	v, err := decode([]byte(a.Text))
	if err != nil {
		return fmt.Errorf("contents[0].text: %w", err)
	}
	return matchText(*e.JSON, v, vars)
}

// expectPayload compares the payload member for member with a JSON text.
func expectPayload(want string, a Answer, vars map[string]any) error {
	w, err := decode([]byte(fill(want, vars)))
	if err != nil {
		return err
	}
	got, _ := at(a.Structured, "/payload")
	if !equal(w, got) {
		return fmt.Errorf("payload %v, want %v", got, w)
	}
	return nil
}

// matchText fills variables in a pattern and matches v.
func matchText(text json.RawMessage, v any, vars map[string]any) error {
	m, err := decode(text)
	if err != nil {
		return err
	}
	if m, err = expand(m, vars); err != nil {
		return err
	}
	return match(m, v, true, "")
}

// match matches v against pattern m at path. present tells whether v is there at all.
func match(m, v any, present bool, path string) error {
	if special, ok := specialOf(m); ok {
		return matchSpecial(special, v, present, path)
	}
	if !present {
		return fmt.Errorf("%s is absent", path)
	}
	switch m := m.(type) {
	case map[string]any:
		object, ok := v.(map[string]any)
		if !ok {
			return fmt.Errorf("%s is no object: %v", path, v)
		}
		for name, inner := range m {
			value, has := object[name]
			if err := match(inner, value, has, path+"/"+name); err != nil {
				return err
			}
		}
		return nil
	case []any:
		list, ok := v.([]any)
		if !ok || len(list) != len(m) {
			return fmt.Errorf("%s is no array of %d: %v", path, len(m), v)
		}
		for i := range m {
			if err := match(m[i], list[i], true, fmt.Sprintf("%s/%d", path, i)); err != nil {
				return err
			}
		}
		return nil
	}
	if !equal(m, v) {
		return fmt.Errorf("%s is %v, want %v", path, v, m)
	}
	return nil
}

// specialOf tells whether m is a special object.
func specialOf(m any) (map[string]any, bool) {
	object, ok := m.(map[string]any)
	if !ok || len(object) == 0 {
		return nil, false
	}
	for name := range object {
		if !strings.HasPrefix(name, "$") {
			return nil, false
		}
	}
	return object, true
}

// matchSpecial matches every $-member.
func matchSpecial(special map[string]any, v any, present bool, path string) error {
	if _, ok := special["$absent"]; ok {
		if present {
			return fmt.Errorf("%s is there: %v", path, v)
		}
		return nil
	}
	if !present {
		return fmt.Errorf("%s is absent", path)
	}
	for name, arg := range special {
		if err := matchOne(name, arg, v, path); err != nil {
			return err
		}
	}
	return nil
}

// matchOne matches one $-member.
func matchOne(name string, arg, v any, path string) error {
	bad := fmt.Errorf("%s is %v, want %s %v", path, v, name, arg)
	switch name {
	case "$any":
		return nil
	case "$re":
		s, ok := v.(string)
		re, err := regexp.Compile(fmt.Sprint(arg))
		if err != nil {
			return err
		}
		if !ok || !re.MatchString(s) {
			return bad
		}
	case "$gte", "$lte":
		got, ok := number(v)
		want, ok2 := number(arg)
		if !ok || !ok2 || (name == "$gte" && got.Cmp(want) < 0) || (name == "$lte" && got.Cmp(want) > 0) {
			return bad
		}
	case "$len":
		if fmt.Sprint(arg) != fmt.Sprint(length(v)) {
			return bad
		}
	case "$not":
		if match(arg, v, true, path) == nil {
			return bad
		}
	case "$exact":
		return exact(arg, v, path)
	case "$isoTime":
		if s, ok := v.(string); !ok || !isoTime(s) {
			return bad
		}
	case "$timePlus":
		return timePlus(arg, v, path)
	default:
		return fmt.Errorf("unknown special object %s", name)
	}
	return nil
}

// exact is deep equality with special objects and no free members.
func exact(m, v any, path string) error {
	if special, ok := specialOf(m); ok {
		return matchSpecial(special, v, true, path)
	}
	switch m := m.(type) {
	case map[string]any:
		object, ok := v.(map[string]any)
		if !ok || len(object) != len(m) {
			return fmt.Errorf("%s has other members: %v, want %v", path, v, m)
		}
		for name, inner := range m {
			value, has := object[name]
			if !has {
				return fmt.Errorf("%s/%s is absent", path, name)
			}
			if err := exact(inner, value, path+"/"+name); err != nil {
				return err
			}
		}
		return nil
	case []any:
		list, ok := v.([]any)
		if !ok || len(list) != len(m) {
			return fmt.Errorf("%s is no array of %d: %v", path, len(m), v)
		}
		for i := range m {
			if err := exact(m[i], list[i], fmt.Sprintf("%s/%d", path, i)); err != nil {
				return err
			}
		}
		return nil
	}
	return match(m, v, true, path)
}

// length is the number of elements or characters of v, -1 for others.
func length(v any) int {
	switch v := v.(type) {
	case []any:
		return len(v)
	case map[string]any:
		return len(v)
	case string:
		return len([]rune(v))
	}
	return -1
}

// isoTime tells whether s is a UTC time with milliseconds.
func isoTime(s string) bool {
	_, err := time.Parse("2006-01-02T15:04:05.000Z", s)
	return err == nil
}

// timePlus matches a time within five seconds of another plus some.
func timePlus(arg, v any, path string) error {
	pair, ok := arg.([]any)
	if !ok || len(pair) != 2 {
		return fmt.Errorf("$timePlus needs [time, seconds]")
	}
	base, err := time.Parse(time.RFC3339, fmt.Sprint(pair[0]))
	if err != nil {
		return err
	}
	got, err := time.Parse(time.RFC3339, fmt.Sprint(v))
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	seconds, _ := number(pair[1])
	f, _ := seconds.Float64()
	if d := got.Sub(base.Add(time.Duration(f * float64(time.Second)))).Abs(); d > 5*time.Second {
		return fmt.Errorf("%s is %v, %v off", path, v, d)
	}
	return nil
}

// number reads v exactly.
func number(v any) (*big.Rat, bool) {
	n, ok := v.(json.Number)
	if !ok {
		return nil, false
	}
	return new(big.Rat).SetString(n.String())
}

// equal compares JSON values; numbers by their binary64 value, as the contract does.
func equal(a, b any) bool {
	switch a := a.(type) {
	case json.Number:
		b, ok := b.(json.Number)
		if !ok {
			return false
		}
		x, err := a.Float64()
		y, err2 := b.Float64()
		return err == nil && err2 == nil && x == y
	case []any:
		b, ok := b.([]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for i := range a {
			if !equal(a[i], b[i]) {
				return false
			}
		}
		return true
	case map[string]any:
		b, ok := b.(map[string]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for name, v := range a {
			w, has := b[name]
			if !has || !equal(v, w) {
				return false
			}
		}
		return true
	}
	return reflect.DeepEqual(a, b)
}
