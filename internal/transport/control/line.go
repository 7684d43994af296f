package control

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
)

// jsonText is JSON as it came, without a second decoding.
type jsonText = json.RawMessage

// errLongLine: a line is longer than allowed.
var errLongLine = errors.New("the line is too long")

// readLine reads one line without its end, of at most limit bytes. io.EOF comes only when there is nothing at all; an
// unfinished last line comes with io.ErrUnexpectedEOF. The result is valid until the next read.
func readLine(r *bufio.Reader, limit int) ([]byte, error) { return readLineInto(r, limit, nil) }

// readLineInto is readLine with room for a line that is longer than the reader's buffer.
func readLineInto(r *bufio.Reader, limit int, room []byte) ([]byte, error) {
	long := room[:0]
	for {
		part, err := r.ReadSlice('\n')
		switch {
		case err == nil && len(long) == 0 && len(part) <= limit+1:
			return trimEnd(part), nil
		case err == nil || errors.Is(err, bufio.ErrBufferFull):
			if long = append(long, part...); len(long) > limit+1 {
				return nil, errLongLine
			}
			if err == nil {
				return trimEnd(long), nil
			}
		case errors.Is(err, io.EOF) && len(part)+len(long) > 0:
			return append(long, part...), io.ErrUnexpectedEOF
		default:
			return nil, err
		}
	}
}

// trimEnd takes the line end away, also that of other systems.
func trimEnd(line []byte) []byte {
	line = line[:len(line)-1]
	if n := len(line); n > 0 && line[n-1] == '\r' {
		line = line[:n-1]
	}
	return line
}
