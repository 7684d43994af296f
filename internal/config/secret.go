package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
)

// Secret is a reference to a secret: "env:NAME" or "file:path". The secret itself is read by Reveal and kept
// nowhere. A Secret prints [redacted] in every format; the zero value is no secret.
type Secret struct{ ref string }

// redacted is all that is ever printed of a secret.
const redacted = "[redacted]"

// maxSecret bounds a secret, in bytes: a private key with its chain fits.
const maxSecret = 64 << 10

// ParseSecret reads a reference. Anything else is refused without being repeated: it may be the secret itself.
func ParseSecret(text string) (Secret, error) {
	kind, name, ok := strings.Cut(text, ":")
	if !ok || name == "" || (kind != "env" && kind != "file") {
		return Secret{}, errors.New("expected a reference to a secret, env:NAME or file:path; a secret itself never stands here")
	}
	return Secret{text}, nil
}

// IsZero tells whether there is no secret.
func (s Secret) IsZero() bool { return s.ref == "" }

// names tells whether it is read from the environment variable of this name.
func (s Secret) names(variable string) bool { return s.ref == "env:"+variable }

// String, GoString, MarshalText and LogValue hide even the reference.
func (s Secret) String() string               { return redacted }
func (s Secret) GoString() string             { return redacted }
func (s Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }
func (s Secret) LogValue() slog.Value         { return slog.StringValue(redacted) }

// Format hides it from every verb of fmt.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, redacted) }

// under gives the secret with a relative file taken from dir.
func (s Secret) under(dir string) Secret {
	if path, ok := strings.CutPrefix(s.ref, "file:"); ok && !filepath.IsAbs(path) {
		return Secret{"file:" + filepath.Join(dir, path)}
	}
	return s
}

// Reveal reads the secret. A variable that is not set or empty, and a file that others than its owner may read, are
// errors. One line break at the end of a file is not part of the secret.
func (s Secret) Reveal(getenv func(string) string) ([]byte, error) {
	kind, name, _ := strings.Cut(s.ref, ":")
	switch kind {
	case "env":
		if v := getenv(name); v != "" {
			return []byte(v), nil
		}
		return nil, fmt.Errorf("environment variable %s is not set", name)
	case "file":
		return readSecret(name)
	}
	return nil, errors.New("no secret is configured")
}

// readSecret reads a secret's file after a look at its mode.
func readSecret(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read secret: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("read secret: %w", err)
	}
	if err := private(path, info); err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(f, maxSecret+1))
	if err != nil {
		return nil, fmt.Errorf("read secret: %w", err)
	}
	if len(text) > maxSecret {
		return nil, fmt.Errorf("secret file %s is larger than %d bytes", path, maxSecret)
	}
	secret := strings.TrimSuffix(strings.TrimSuffix(string(text), "\n"), "\r")
	if secret == "" {
		return nil, fmt.Errorf("secret file %s is empty", path)
	}
	return []byte(secret), nil
}

// private refuses what is no regular file and what group or others have any right on.
func private(path string, info fs.FileInfo) error {
	if !info.Mode().IsRegular() {
		return fmt.Errorf("secret file %s is not a regular file", path)
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return fmt.Errorf("secret file %s may be read by others (mode %04o); run: chmod 600 %s", path, mode, path)
	}
	return nil
}
