package scenario

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// decode reads JSON with exact numbers. Nothing is {}.
func decode(text []byte) (any, error) {
	if len(text) == 0 {
		return map[string]any{}, nil
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var v any
	err := d.Decode(&v)
	return v, err
}

// encode writes JSON without HTML escapes.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// fill replaces ${name} in s.
func fill(s string, vars map[string]any) string {
	for name, v := range vars {
		s = strings.ReplaceAll(s, "${"+name+"}", fmt.Sprint(v))
	}
	return s
}

// expand fills variables and runs generators in v.
func expand(v any, vars map[string]any) (any, error) {
	switch v := v.(type) {
	case string:
		if name, ok := strings.CutPrefix(v, "${"); ok && strings.HasSuffix(name, "}") && strings.Count(v, "${") == 1 {
			if value, ok := vars[strings.TrimSuffix(name, "}")]; ok {
				return value, nil
			}
		}
		return fill(v, vars), nil
	case []any:
		out := make([]any, len(v))
		for i, item := range v {
			var err error
			if out[i], err = expand(item, vars); err != nil {
				return nil, err
			}
		}
		return out, nil
	case map[string]any:
		if kind, ok := v["$gen"].(string); ok {
			return generate(kind, v, vars)
		}
		out := make(map[string]any, len(v))
		for name, item := range v {
			var err error
			if out[name], err = expand(item, vars); err != nil {
				return nil, err
			}
		}
		return out, nil
	}
	return v, nil
}

// generate makes the value of a generator.
func generate(kind string, g, vars map[string]any) (any, error) {
	count := func(name string) int {
		n, _ := strconv.Atoi(fmt.Sprint(g[name]))
		return n
	}
	switch kind {
	case "string":
		return strings.Repeat(fmt.Sprint(g["char"]), count("count")), nil
	case "array":
		item, err := expand(g["item"], vars)
		if err != nil {
			return nil, err
		}
		out := make([]any, count("count"))
		for i := range out {
			out[i] = item
		}
		return out, nil
	case "nestedArrays", "nestedObjects":
		return nested(kind, count("depth"), g)
	case "sha256fill":
		b, _ := strconv.Atoi(fmt.Sprint(g["byte"]))
		sum := sha256.Sum256(bytes.Repeat([]byte{byte(b)}, count("count")))
		return hex.EncodeToString(sum[:]), nil
	}
	return nil, fmt.Errorf("unknown generator %q", kind)
}

// nested makes depth containers around the leaf, or around nothing.
func nested(kind string, depth int, g map[string]any) (any, error) {
	leaf, has := g["leaf"]
	var v any = []any{}
	switch {
	case has:
		v = leaf
		depth++
	case kind == "nestedObjects":
		v = map[string]any{}
	}
	for range depth - 1 {
		if kind == "nestedArrays" {
			v = []any{v}
		} else {
			v = map[string]any{"o": v}
		}
	}
	return v, nil
}

// at is the value at an RFC 6901 pointer.
func at(v any, pointer string) (any, bool) {
	if pointer == "" {
		return v, true
	}
	for _, token := range strings.Split(strings.TrimPrefix(pointer, "/"), "/") {
		token = strings.NewReplacer("~1", "/", "~0", "~").Replace(token)
		switch c := v.(type) {
		case map[string]any:
			next, ok := c[token]
			if !ok {
				return nil, false
			}
			v = next
		case []any:
			i, err := strconv.Atoi(token)
			if err != nil || i < 0 || i >= len(c) {
				return nil, false
			}
			v = c[i]
		default:
			return nil, false
		}
	}
	return v, true
}

// alphabet is that of base64url, in the order of its values.
const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"

// tamper makes an altered cursor.
func tamper(st Step, vars map[string]any) error {
	text := fill(st.Tamper, vars)
	flip := func(i int) string {
		at := strings.IndexByte(alphabet, text[i])
		return text[:i] + string(alphabet[at^32]) + text[i+1:]
	}
	switch st.How {
	case "first":
		text = flip(0)
	case "middle":
		text = flip(len(text) / 2)
	case "last":
		text = flip(len(text) - 1)
	case "truncate":
		text = text[:len(text)-4]
	case "extend":
		text += "AAAA"
	default:
		return fmt.Errorf("unknown way to tamper %q", st.How)
	}
	for name := range st.Save {
		vars[name] = text
	}
	return nil
}
