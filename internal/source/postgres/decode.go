package postgres

import (
	"encoding/base64"
	"encoding/hex"
	"strconv"
	"strings"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/source/sqlexec"
	"github.com/tabellion-mcp/tabellion/model"
)

// decode reads the text of a cell as a value of the declared type; false where it is none: NaN, an infinity, a time that
// JSON's form cannot write.
func decode(t model.Type, s string) (canonjson.Value, bool) {
	switch t {
	case model.String:
		return sqlexec.Text(s)
	case model.Int, model.Long, model.Date:
		n, err := strconv.ParseInt(s, 10, 64)
		return canonjson.Exact(n), err == nil
	case model.Float, model.Double:
		f, err := strconv.ParseFloat(s, 64)
		if err != nil {
			return canonjson.Value{}, false
		}
		return sqlexec.Float(f)
	case model.Number:
		return number(s)
	case model.Boolean:
		return boolean(s)
	case model.Decimal:
		d, ok := sqlexec.Decimal(s)
		return canonjson.String(d), ok
	case model.Timestamp:
		return sqlexec.Timestamp(s)
	case model.Day:
		return sqlexec.Day(s)
	case model.UUID:
		return sqlexec.UUID(s)
	case model.Bytes:
		return bytes(s)
	}
	return sqlexec.JSON(t, s)
}

// number reads a number of any native type: an integer keeps its digits.
func number(s string) (canonjson.Value, bool) {
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		return canonjson.Exact(n), true
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return canonjson.Value{}, false
	}
	return sqlexec.Float(f)
}

// boolean reads t and f, and the integers of columns that keep truth as one.
func boolean(s string) (canonjson.Value, bool) {
	switch s {
	case "t", "true":
		return canonjson.Bool(true), true
	case "f", "false":
		return canonjson.Bool(false), true
	}
	n, err := strconv.ParseInt(s, 10, 64)
	return canonjson.Bool(n != 0), err == nil
}

// bytes reads bytea's hexadecimal form.
func bytes(s string) (canonjson.Value, bool) {
	digits, ok := strings.CutPrefix(s, `\x`)
	raw, err := hex.DecodeString(digits)
	if !ok || err != nil {
		return canonjson.Value{}, false
	}
	return canonjson.String(base64.StdEncoding.EncodeToString(raw)), true
}
