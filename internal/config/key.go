package config

import (
	"errors"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// key is one place of the configuration: a section with keys, a list of records, or a leaf with set.
type key struct {
	name string
	doc  string // one or more sentences for a person
	kind string // what is expected, for messages and the documentation; leaves only
	def  string // the default as it would be written; "" is none

	keys    []*key                                      // of a section
	begin   func(c *Config)                             // of a section that counts when it is empty too; nil: it does not
	records func() (fields []*key, add func(c *Config)) // of a list of sections
	entries func(c *Config, name string) *key           // of a section whose keys are chosen by the operator: the leaf of one

	needed  bool   // of a field of a record: it must be there
	unit    string // what a bare number lacks: "s"; "" when nothing
	accepts []kind // kinds of YAML values a leaf takes
	set     func(c *Config, texts []string) error

	// unserved says what is not part of this version; the key is refused with these words.
	unserved string
}

// leaf tells whether k holds a value of its own.
func (k *key) leaf() bool { return k.set != nil }

// section is a key with keys under it.
func section(name, doc string, keys ...*key) *key { return &key{name: name, doc: doc, keys: keys} }

// unserved is a key that is specified and not part of this version.
func unserved(name, words string) *key { return &key{name: name, unserved: words} }

// scalar is a leaf of one value.
func scalar(name, want, def, doc string, accepts []kind, set func(c *Config, text string) error) *key {
	return &key{name: name, doc: doc, kind: want, def: def, accepts: accepts, set: func(c *Config, texts []string) error {
		if len(texts) != 1 {
			return errors.New("expected " + want)
		}
		return set(c, texts[0])
	}}
}

// text is a leaf of any text that ok accepts; ok may be nil.
func text(name, def, doc string, at func(*Config) *string, ok func(string) error) *key {
	return scalar(name, "a text", def, doc, []kind{kindText}, func(c *Config, s string) error {
		if ok != nil {
			if err := ok(s); err != nil {
				return err
			}
		}
		*at(c) = s
		return nil
	})
}

// choice is a leaf of one of a few words.
func choice(name, def, doc string, words []string, set func(*Config, string)) *key {
	want := "one of " + strings.Join(words, ", ")
	return scalar(name, want, def, doc, []kind{kindText}, func(c *Config, s string) error {
		if !slices.Contains(words, s) {
			return fmt.Errorf("expected %s, got %s", want, quote(s))
		}
		set(c, s)
		return nil
	})
}

// boolean is a leaf of true or false.
func boolean(name, def, doc string, at func(*Config) *bool) *key {
	return scalar(name, "true or false", def, doc, []kind{kindBool}, func(c *Config, s string) error {
		switch s {
		case "true":
			*at(c) = true
		case "false":
			*at(c) = false
		default:
			return fmt.Errorf("expected true or false, got %s", quote(s))
		}
		return nil
	})
}

// integer is a leaf of a whole number in a range.
func integer(name, def, doc string, low, high int64, set func(*Config, int64)) *key {
	want := fmt.Sprintf("a whole number from %d to %d", low, high)
	return scalar(name, want, def, doc, []kind{kindInteger}, func(c *Config, s string) error {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil || n < low || n > high {
			return fmt.Errorf("expected %s, got %s", want, quote(s))
		}
		set(c, n)
		return nil
	})
}

// number is a leaf of a number in a range.
func number(name, def, doc string, low, high float64, at func(*Config) *float64) *key {
	want := fmt.Sprintf("a number from %v to %s", low, strconv.FormatFloat(high, 'f', -1, 64))
	return scalar(name, want, def, doc, []kind{kindInteger, kindNumber}, func(c *Config, s string) error {
		n, err := strconv.ParseFloat(s, 64)
		if err != nil || !(n >= low && n <= high) {
			return fmt.Errorf("expected %s, got %s", want, quote(s))
		}
		*at(c) = n
		return nil
	})
}

// duration is a leaf of a time span in a range, such as 90s, 15m, 12h or 7d.
func duration(name, def, doc string, low, high time.Duration, at func(*Config) *time.Duration) *key {
	want := fmt.Sprintf("a time span from %s to %s, such as 30s or 7d", formatDuration(low), formatDuration(high))
	k := scalar(name, want, def, doc, []kind{kindText}, func(c *Config, s string) error {
		d, err := parseDuration(s)
		if err != nil || d < low || d > high {
			return fmt.Errorf("expected %s, got %s", want, quote(s))
		}
		*at(c) = d
		return nil
	})
	k.unit = "s"
	if low >= 24*time.Hour {
		k.unit = "d"
	}
	return k
}

// size is a leaf of a number of bytes in a range, such as 65536, 64KiB or 4MiB.
func size(name, def, doc string, low, high int64, set func(*Config, int64)) *key {
	want := fmt.Sprintf("a size from %s to %s, such as 64KiB or 4MiB", formatSize(low), formatSize(high))
	return scalar(name, want, def, doc, []kind{kindInteger, kindText}, func(c *Config, s string) error {
		n, err := parseSize(s)
		if err != nil || n < low || n > high {
			return fmt.Errorf("expected %s, got %s", want, quote(s))
		}
		set(c, n)
		return nil
	})
}

// list is a leaf of several texts. In variables and flags they are separated by commas.
func list(name, def, doc string, at func(*Config) *[]string, ok func(string) error) *key {
	return &key{name: name, kind: "a list of texts", def: def, doc: doc, accepts: []kind{kindList}, set: func(c *Config, texts []string) error {
		for _, s := range texts {
			if s == "" {
				return errors.New("an entry is empty")
			}
			if ok != nil {
				if err := ok(s); err != nil {
					return err
				}
			}
		}
		*at(c) = append([]string{}, texts...) // an empty list that was given is not nil
		return nil
	}}
}

// secret is a leaf of a reference to a secret.
func secret(name, doc string, at func(*Config) *Secret) *key {
	return scalar(name, "env:NAME or file:path", "", doc, []kind{kindText}, func(c *Config, s string) error {
		ref, err := ParseSecret(s)
		if err != nil {
			return err
		}
		*at(c) = ref
		return nil
	})
}

// quote shows a value in a message, cut to 64 bytes.
func quote(s string) string {
	if len(s) > 64 {
		s = s[:64] + "..."
	}
	return strconv.Quote(s)
}

// address accepts host:port.
func address(s string) error {
	host, port, err := net.SplitHostPort(s)
	if n, perr := strconv.ParseUint(port, 10, 16); err != nil || perr != nil || host == "" {
		return fmt.Errorf("expected host:port such as 127.0.0.1:8635, got %s", quote(s))
	} else if n == 0 && port != "0" {
		return fmt.Errorf("expected host:port such as 127.0.0.1:8635, got %s", quote(s))
	}
	return nil
}

// hostName is a host as it stands in a Host header, without a port.
var hostName = regexp.MustCompile(`^(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?(\.[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?)*)$`)

// host accepts a host name or address. There is no wildcard.
func host(s string) error {
	if !hostName.MatchString(s) {
		return fmt.Errorf("expected a host name without scheme, port and wildcard, got %s", quote(s))
	}
	return nil
}

// webOrigin is an origin as browsers send it.
var webOrigin = regexp.MustCompile(`^https?://[^/?#\s*]+$`)

// originOf accepts an origin. There is no wildcard, and "null" is none.
func originOf(s string) error {
	if !webOrigin.MatchString(s) {
		return fmt.Errorf("expected an origin such as https://app.example.org, without path and wildcard, got %s", quote(s))
	}
	return nil
}

// plainName is a name of a service, a subject or a role.
var plainName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._@+-]{0,63}$`)

// name accepts a short name.
func name(s string) error {
	if !plainName.MatchString(s) {
		return fmt.Errorf("expected at most 64 letters, digits and . _ @ + -, got %s", quote(s))
	}
	return nil
}

// parseDuration reads a Go duration, or whole days as "7d".
func parseDuration(s string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(s, "d"); ok {
		n, err := strconv.ParseUint(days, 10, 16)
		return time.Duration(n) * 24 * time.Hour, err
	}
	return time.ParseDuration(s)
}

// formatDuration writes whole days as days.
func formatDuration(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d >= day && d%day == 0:
		return strconv.FormatInt(int64(d/day), 10) + "d"
	case d >= time.Minute && d%time.Minute == 0:
		return strconv.FormatInt(int64(d/time.Minute), 10) + "m"
	}
	return d.String()
}

// units of sizes, largest first.
var units = []struct {
	name  string
	bytes int64
}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}}

// parseSize reads bytes, with a unit or without.
func parseSize(s string) (int64, error) {
	for _, u := range units {
		if digits, ok := strings.CutSuffix(s, u.name); ok {
			n, err := strconv.ParseInt(digits, 10, 64)
			if err != nil || n < 0 || n > (1<<62)/u.bytes {
				return 0, errors.New("not a size")
			}
			return n * u.bytes, nil
		}
	}
	return strconv.ParseInt(s, 10, 64)
}

// formatSize writes bytes with the largest unit that divides them.
func formatSize(n int64) string {
	for _, u := range units {
		if n >= u.bytes && n%u.bytes == 0 {
			return strconv.FormatInt(n/u.bytes, 10) + u.name
		}
	}
	return strconv.FormatInt(n, 10)
}
