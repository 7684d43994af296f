package identity

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/tabellion-mcp/tabellion/fault"
	"github.com/tabellion-mcp/tabellion/internal/audit"
	"github.com/tabellion-mcp/tabellion/internal/clock"
	"github.com/tabellion-mcp/tabellion/policy"
)

// Bounds of keys. 20 live keys a user and a grace of 24 hours are those of the context specification, section 13.
const (
	MaxLiveKeys  = 20
	DefaultGrace = 24 * time.Hour
	// DefaultPruneAge is how long a dead key is remembered unless told otherwise: so long its name can be found.
	DefaultPruneAge = 30 * 24 * time.Hour
	maxLifetime     = 36500 * 24 * time.Hour
	maxNameChars    = 100
	maxReasonChars  = 200
	maxListed       = 64 // roles, scopes or workspaces of one key
)

// RowFunc gives the audit row of a change of a key: target is the key's id, note holds further words of ours.
type RowFunc func(target, note string) audit.Row

// KeyService makes, shows and ends API keys, by the rules of the context specification, section 13. It judges no
// access: the gate has done that. Its errors are faults, or those of the store. It is safe for concurrent use.
type KeyService struct {
	keys   Keys
	auth   *Authenticator // told of changes; may be nil
	clock  clock.Clock
	random io.Reader
	pepper []byte
	prefix string
}

// ServiceConfig is what a key service needs. Pepper and Prefix must be those of the authenticator.
type ServiceConfig struct {
	Keys   Keys
	Auth   *Authenticator // nil when no requests are authenticated in this process
	Clock  clock.Clock
	Random io.Reader
	Pepper []byte
	Prefix string // "" is DefaultPrefix
}

// NewKeyService makes a key service.
func NewKeyService(c ServiceConfig) (*KeyService, error) {
	if c.Prefix == "" {
		c.Prefix = DefaultPrefix
	}
	if err := CheckPrefix(c.Prefix); err != nil {
		return nil, err
	}
	return &KeyService{keys: c.Keys, auth: c.Auth, clock: c.Clock, random: c.Random, pepper: c.Pepper, prefix: c.Prefix}, nil
}

// KeySpec describes a key to be made.
type KeySpec struct {
	User, Name string
	Roles      []string
	Only       []string // scopes, capability@pattern; none is no narrowing
	Tenant     string
	Workspaces []string
	Expires    string // as ParseExpiry reads it
}

// NewKey is a key that was made, with the only copy of its text.
type NewKey struct {
	Key   Key
	Text  string
	Notes []string // what the operator should know
}

// Create makes a key.
func (s *KeyService) Create(ctx context.Context, spec KeySpec, row RowFunc) (NewKey, error) {
	now := s.now()
	if err := spec.check(); err != nil {
		return NewKey{}, err
	}
	expires, err := ParseExpiry(spec.Expires, now)
	if err != nil {
		return NewKey{}, err
	}
	made, err := s.draw(now)
	if err != nil {
		return NewKey{}, err
	}
	k := &made.Key
	k.User, k.Name, k.Tenant, k.ExpiresAt = spec.User, spec.Name, spec.Tenant, expires
	k.Roles, k.Workspaces = slices.Clone(spec.Roles), slices.Clone(spec.Workspaces)
	if len(spec.Only) > 0 {
		k.Only = slices.Clone(spec.Only)
	}
	if err := s.keys.AddKey(ctx, *k, MaxLiveKeys, now, row(k.ID, "created for "+k.User)); err != nil {
		if errors.Is(err, ErrTooManyKeys) {
			return NewKey{}, fault.New(fault.QuotaExceeded, "user %q has %d live keys, the most that are allowed; revoke one first", k.User, MaxLiveKeys)
		}
		return NewKey{}, fmt.Errorf("store a key: %w", err)
	}
	if len(k.Roles) == 0 {
		made.Notes = append(made.Notes, fmt.Sprintf("The key has no roles: it can do nothing but what the policy assigns to user:%s or key:%s by name.", k.User, k.ID))
	}
	return made, nil
}

// now is the time as it is stored.
func (s *KeyService) now() time.Time { return s.clock.Now().UTC().Truncate(time.Millisecond) }

// draw makes the random parts of a key.
func (s *KeyService) draw(now time.Time) (NewKey, error) {
	text, err := NewKeyText(s.prefix, s.random)
	if err != nil {
		return NewKey{}, err
	}
	var id [6]byte
	if _, err := io.ReadFull(s.random, id[:]); err != nil {
		return NewKey{}, fmt.Errorf("draw an id: %w", err)
	}
	hint, _ := keyHint(text, s.prefix)
	return NewKey{Text: text, Key: Key{
		ID: hex.EncodeToString(id[:]), Hint: hint, Digest: keyDigest(text, s.pepper), CreatedAt: now,
	}}, nil
}

// check refuses what no key may be.
func (k *KeySpec) check() error {
	if k.User == "" {
		return fault.New(fault.InvalidRequest, "the user is empty; name the one that the key acts as")
	}
	if !userName.MatchString(k.User) {
		return fault.New(fault.InvalidRequest, "user %q is not a name of letters, digits and . _ @ + -, at most 128 of them", clip(k.User))
	}
	if err := checkWords("name", k.Name, 1, maxNameChars); err != nil {
		return err
	}
	if k.Tenant != "" && !roleName.MatchString(k.Tenant) {
		return fault.New(fault.InvalidRequest, "tenant %q is not a name of letters, digits and . _ -, at most 128 of them", clip(k.Tenant))
	}
	if n := max(len(k.Roles), len(k.Only), len(k.Workspaces)); n > maxListed {
		return fault.New(fault.InvalidRequest, "a key has at most %d roles, scopes and workspaces each, not %d", maxListed, n)
	}
	if err := cmp.Or(checkNames("role", roleName, k.Roles), checkNames("workspace", roleName, k.Workspaces)); err != nil {
		return fault.New(fault.InvalidRequest, "%s", err)
	}
	for _, scope := range k.Only {
		if _, err := policy.ParseScope(scope); err != nil {
			return fault.New(fault.InvalidRequest, "%s", err)
		}
	}
	return nil
}

// checkWords refuses text for people that is too short, too long, or holds what cannot be seen.
func checkWords(what, text string, least, most int) error {
	n := utf8.RuneCountInString(text)
	if n > most {
		return fault.New(fault.InvalidRequest, "the %s has %d characters; at most %d are kept", what, n, most)
	}
	visible := func(r rune) bool { return unicode.IsPrint(r) && r != utf8.RuneError }
	if n < least || n > most || strings.TrimSpace(text) != text || strings.ContainsFunc(text, func(r rune) bool { return !visible(r) }) {
		return fault.New(fault.InvalidRequest, "the %s must be %d to %d printable characters without blanks around them", what, least, most)
	}
	return nil
}

// lifetime is the form of a length of time: days, hours or minutes.
var lifetime = regexp.MustCompile(`^([0-9]{1,8})([dhm])$`)

// ParseExpiry reads when a key ends: "90d", "12h" or "30m" from now, a time in RFC 3339, or "" and "never" for the zero
// time. It must be in the future and at most a hundred years away.
func ParseExpiry(text string, now time.Time) (time.Time, error) {
	if text == "" || text == "never" {
		return time.Time{}, nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		d, err := parseLifetime(text)
		if err != nil {
			return time.Time{}, err
		}
		at = now.Add(d)
	}
	at = at.UTC().Truncate(time.Millisecond)
	if !at.After(now) {
		return time.Time{}, fault.New(fault.InvalidRequest, "the key would have expired already: %q is not in the future", clip(text))
	}
	if at.Sub(now) > maxLifetime {
		return time.Time{}, fault.New(fault.InvalidRequest, "the key would live longer than a hundred years; leave the expiry out for a key that does not expire")
	}
	return at, nil
}

// parseLifetime reads "90d", "12h" or "30m".
func parseLifetime(text string) (time.Duration, error) {
	m := lifetime.FindStringSubmatch(text)
	if m == nil {
		return 0, fault.New(fault.InvalidRequest, "%q is neither a length of time such as 90d, 12h or 30m nor a time such as 2027-01-31T12:00:00Z", clip(text))
	}
	n, _ := strconv.ParseInt(m[1], 10, 64) // at most 8 digits
	unit := map[string]time.Duration{"d": 24 * time.Hour, "h": time.Hour, "m": time.Minute}[m[2]]
	if n > int64(maxLifetime/unit) {
		return 0, fault.New(fault.InvalidRequest, "%q is longer than a hundred years", clip(text))
	}
	return time.Duration(n) * unit, nil
}

// List gives all keys, oldest first, dead ones too.
func (s *KeyService) List(ctx context.Context) ([]Key, error) {
	keys, err := s.keys.ListKeys(ctx)
	if err != nil {
		return nil, fmt.Errorf("list keys: %w", err)
	}
	return keys, nil
}

// Show gives one key.
func (s *KeyService) Show(ctx context.Context, id string) (Key, error) {
	k, err := s.keys.Key(ctx, id)
	return k, s.known(id, err)
}

// known turns the store's word for an unknown id into a fault.
func (s *KeyService) known(id string, err error) error {
	if errors.Is(err, ErrKeyUnknown) {
		return fault.New(fault.NotFound, "no key has the id %q, see keys list", clip(id))
	}
	return err
}

// errUnchanged ends an update that would change nothing.
var errUnchanged = errors.New("nothing to change")

// Revoke ends a key at once, in other processes within 5 seconds. Revoking a revoked key changes nothing, and stores no
// row.
func (s *KeyService) Revoke(ctx context.Context, id, reason string, row RowFunc) (after Key, changed bool, err error) {
	if err := checkWords("reason", reason, 0, maxReasonChars); err != nil {
		return Key{}, false, err
	}
	now := s.now()
	err = s.keys.UpdateKey(ctx, id, row(id, strings.TrimSuffix("revoked: "+reason, ": ")), func(k *Key) error {
		after = *k
		if !k.RevokedAt.IsZero() {
			return errUnchanged
		}
		k.RevokedAt, k.Reason = now, reason
		after = *k
		return nil
	})
	s.forget(id)
	if err != nil && !errors.Is(err, errUnchanged) {
		return Key{}, false, s.known(id, err)
	}
	return after, err == nil, nil
}

// forget has the authenticator of this process ask anew.
func (s *KeyService) forget(id string) {
	if s.auth != nil {
		s.auth.Forget(id)
	}
}

// Rotation says how to replace a key.
type Rotation struct {
	Grace   string // how long the old key stays good, such as "24h"; "" is a day, "0h" ends it at once
	Expires string // of the new key; "" is as long from now as the old key's whole life was
}

// Rotate makes a key that replaces another and has the same rights. The old one ends after the grace, or when it would
// have ended anyway. Only a live key that was not rotated before can be.
func (s *KeyService) Rotate(ctx context.Context, id string, r Rotation, row RowFunc) (NewKey, error) {
	now, grace := s.now(), DefaultGrace
	if r.Grace != "" {
		var err error
		if grace, err = parseLifetime(r.Grace); err != nil {
			return NewKey{}, err
		}
	}
	old, err := s.Show(ctx, id)
	if err != nil {
		return NewKey{}, err
	}
	if err := s.room(ctx, &old, grace, now); err != nil {
		return NewKey{}, err
	}
	made, err := s.successor(&old, r.Expires, now)
	if err != nil {
		return NewKey{}, err
	}
	next := made.Key
	err = s.keys.ReplaceKey(ctx, id, row(id, "rotated to "+next.ID), func(k *Key) error {
		if err := rotatable(k, now); err != nil {
			return err
		}
		k.RotatedTo = next.ID
		if end := now.Add(grace); k.ExpiresAt.IsZero() || end.Before(k.ExpiresAt) {
			k.ExpiresAt = end
		}
		return nil
	}, next)
	s.forget(id)
	if err != nil {
		return NewKey{}, s.known(id, err)
	}
	return made, nil
}

// room refuses a rotation that would leave the user with too many live keys. Unlike in Create this is no part of the
// transaction: two rotations at once may pass it together.
func (s *KeyService) room(ctx context.Context, old *Key, grace time.Duration, now time.Time) error {
	if grace == 0 {
		return nil // one for one
	}
	keys, err := s.List(ctx)
	if err != nil {
		return err
	}
	live := 0
	for i := range keys {
		if keys[i].User == old.User && keys[i].Live(now) {
			live++
		}
	}
	if live >= MaxLiveKeys {
		return fault.New(fault.QuotaExceeded, "user %q has %d live keys, the most that are allowed; rotate with grace 0h, or revoke one first", old.User, MaxLiveKeys)
	}
	return nil
}

// rotatable refuses a dead key and one that has been rotated.
func rotatable(k *Key, now time.Time) error {
	switch {
	case k.RotatedTo != "":
		return fault.New(fault.InvalidRequest, "key %s was rotated to %s already; rotate that one", k.ID, k.RotatedTo)
	case !k.Live(now):
		return fault.New(fault.InvalidRequest, "key %s is revoked or has expired; create a new key", k.ID)
	}
	return nil
}

// successor draws a key with old's rights.
func (s *KeyService) successor(old *Key, expires string, now time.Time) (NewKey, error) {
	made, err := s.draw(now)
	if err != nil {
		return NewKey{}, err
	}
	k := &made.Key
	k.User, k.Name, k.Tenant = old.User, old.Name, old.Tenant
	k.Roles, k.Only, k.Workspaces = slices.Clone(old.Roles), slices.Clone(old.Only), slices.Clone(old.Workspaces)
	switch {
	case expires != "":
		k.ExpiresAt, err = ParseExpiry(expires, now)
	case !old.ExpiresAt.IsZero():
		// Whole minutes, so that a key that is rotated again and again does not live a little longer each time.
		k.ExpiresAt = now.Add(old.ExpiresAt.Sub(old.CreatedAt).Round(time.Minute))
	}
	return made, err
}

// Prune forgets keys that have been dead for longer than age, such as "30d" ("" is that), and gives their ids.
func (s *KeyService) Prune(ctx context.Context, age string, row RowFunc) ([]string, error) {
	old := DefaultPruneAge
	if age != "" {
		var err error
		if old, err = parseLifetime(age); err != nil {
			return nil, err
		}
	}
	ids, err := s.keys.PruneKeys(ctx, s.now().Add(-old), func(ids []string) []byte {
		return row("", fmt.Sprintf("pruned %d keys: %s", len(ids), joinSome(ids)))
	})
	if err != nil {
		return nil, fmt.Errorf("prune keys: %w", err)
	}
	for _, id := range ids {
		s.forget(id)
	}
	return ids, nil
}

// joinSome lists the first ids, for a note.
func joinSome(ids []string) string {
	const most = 50
	if len(ids) > most {
		return strings.Join(ids[:most], " ") + " ..."
	}
	return strings.Join(ids, " ")
}
