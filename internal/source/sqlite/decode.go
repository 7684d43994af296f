package sqlite

import (
	"database/sql/driver"
	"encoding/base64"
	"math"
	"strconv"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/source/sqlexec"
	"github.com/tabellion-mcp/tabellion/internal/source/sqlgen"
	"github.com/tabellion-mcp/tabellion/model"
)

// decode reads a cell as a value of the declared type; false where it holds something else. SQLite keeps any type in any
// column, so what the cell really holds decides.
func decode(c *sqlgen.Cell, cell driver.Value) (canonjson.Value, bool) {
	switch v := cell.(type) {
	case int64:
		return decodeInteger(c.Type, v)
	case float64:
		return decodeFloat(c.Type, v)
	case string:
		return decodeText(c.Type, v)
	case []byte:
		return decodeBlob(c.Type, v)
	}
	return canonjson.Value{}, false
}

// decodeInteger reads an integer.
func decodeInteger(t model.Type, n int64) (canonjson.Value, bool) {
	switch t {
	case model.Int, model.Long, model.Date, model.Number, model.Any:
		return canonjson.Exact(n), true
	case model.Float, model.Double:
		return canonjson.Float(float64(n)), true
	case model.Boolean:
		return canonjson.Bool(n != 0), true
	case model.Decimal:
		return canonjson.String(strconv.FormatInt(n, 10)), true
	}
	return canonjson.Value{}, false
}

// decodeFloat reads a number of binary64.
func decodeFloat(t model.Type, f float64) (canonjson.Value, bool) {
	switch t {
	case model.Float, model.Double, model.Number, model.Any:
		return sqlexec.Float(f)
	case model.Decimal:
		if math.IsNaN(f) || math.IsInf(f, 0) {
			return canonjson.Value{}, false
		}
		s, ok := sqlexec.Decimal(strconv.FormatFloat(f, 'f', -1, 64))
		return canonjson.String(s), ok
	}
	return canonjson.Value{}, false
}

// decodeText reads text.
func decodeText(t model.Type, s string) (canonjson.Value, bool) {
	switch t {
	case model.String:
		return sqlexec.Text(s)
	case model.Array, model.Object, model.Any:
		return sqlexec.JSON(t, s)
	case model.Decimal:
		d, ok := sqlexec.Decimal(s)
		return canonjson.String(d), ok
	case model.Timestamp:
		return sqlexec.Timestamp(s)
	case model.Day:
		return sqlexec.Day(s)
	case model.UUID:
		return sqlexec.UUID(s)
	}
	return canonjson.Value{}, false
}

// decodeBlob reads bytes.
func decodeBlob(t model.Type, b []byte) (canonjson.Value, bool) {
	if t != model.Bytes {
		return canonjson.Value{}, false
	}
	return canonjson.String(base64.StdEncoding.EncodeToString(b)), true
}
