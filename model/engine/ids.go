package engine

import (
	"fmt"
	"io"
	"strconv"
	"strings"
)

// newID makes an id: the prefix, the time in milliseconds, and eight random characters, both in base 36 and upper case
// (models, section 2.6).
func (e *Engine) newID(prefix string) (string, error) {
	const digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	const fair = 256 - 256%len(digits) // bytes from here on would favour the first digits
	id := []byte(prefix + strings.ToUpper(strconv.FormatInt(e.cfg.Clock.Now().UnixMilli(), 36)))
	var b [1]byte
	e.random.Lock()
	defer e.random.Unlock()
	for n := 0; n < 8; {
		if _, err := io.ReadFull(e.cfg.Random, b[:]); err != nil {
			return "", fmt.Errorf("read random bytes for an id: %w", err)
		}
		if int(b[0]) < fair {
			id = append(id, digits[int(b[0])%len(digits)])
			n++
		}
	}
	return string(id), nil
}
