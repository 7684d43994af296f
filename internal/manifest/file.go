package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
)

// ErrBreaking: the change needs a contract of another name. The error lists what breaks.
var ErrBreaking = errors.New("the change breaks clients of the contract; it needs another name")

// limits are those of a manifest's file.
var limits = canonjson.Limits{Depth: 100, Nodes: 200_000}

// Read reads a manifest. errors.Is(err, fs.ErrNotExist) when there is none.
func Read(file string) (canonjson.Value, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return canonjson.Value{}, err
	}
	m, err := canonjson.ParseStrict(text, limits)
	if err != nil {
		return canonjson.Value{}, fmt.Errorf("read %s: %w", file, err)
	}
	return m, nil
}

// Write brings the file of a contract up to m: revision 1 for a new file, the same revision when nothing changed, the
// next one after an addition, and 1 for a contract of another name. A breaking change is refused with ErrBreaking, and the file stays. It returns the revision
// and what changed.
func Write(file string, m canonjson.Value) (revision int64, change Change, err error) {
	old, err := Read(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		revision = 1
	case err != nil:
		return 0, Change{}, err
	case old.Get("contract").Str() != m.Get("contract").Str():
		revision, change = 1, Compare(old, m)
	default:
		revision, change = Revision(old), Compare(old, m)
		if len(change.Breaking) > 0 {
			return revision, change, fmt.Errorf("%w: %s", ErrBreaking, strings.Join(change.Breaking, "; "))
		}
		if !change.None() {
			revision++
		}
	}
	return revision, change, write(file, WithRevision(m, revision))
}

// WithRevision is m at another revision.
func WithRevision(m canonjson.Value, revision int64) canonjson.Value {
	members := m.Members()
	out := make([]canonjson.Member, len(members))
	for i, member := range members {
		out[i] = member
		if member.Name == "revision" {
			out[i].Value = canonjson.Int(revision)
		}
	}
	return canonjson.Object(out...)
}

// write replaces the file as a whole.
func write(file string, m canonjson.Value) error {
	text, err := Text(m)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	part := file + ".part"
	if err := os.WriteFile(part, text, 0o644); err != nil {
		return err
	}
	return os.Rename(part, file)
}

// Text is how a manifest is written: indented, with a line feed at the end.
func Text(m canonjson.Value) ([]byte, error) {
	var b bytes.Buffer
	if err := json.Indent(&b, m.AppendJSON(nil), "", "  "); err != nil {
		return nil, err
	}
	b.WriteByte('\n')
	return b.Bytes(), nil
}
