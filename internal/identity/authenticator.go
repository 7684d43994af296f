package identity

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/tabellion-mcp/tabellion/internal/clock"
	"github.com/tabellion-mcp/tabellion/policy"
)

// Times of the authenticator (context specification, section 13).
const (
	// cacheFor is how long a good key is taken for good without a look-up: a revocation by another process works
	// after at most this long.
	cacheFor = 5 * time.Second
	// touchEvery is how often uses are written.
	touchEvery = time.Minute
	// touchFirst is when the first use of a key by this process is written: whoever made it sees that it works.
	touchFirst = time.Second
	// touchTimeout bounds one writing of uses.
	touchTimeout = 10 * time.Second
)

// maxCached bounds the cache, in keys. Only good keys are in it; beyond the bound it is begun anew.
const maxCached = 10_000

// Config is what an authenticator needs. Clock and Log are required.
type Config struct {
	Keys   Keys // nil: no key is accepted, whoever made it
	Clock  clock.Clock
	Pepper []byte // of the digests; none: plain SHA-256
	Prefix string // of keys; "" is DefaultPrefix
	// Dev asks nobody for credentials (persistence.v1, section 1: --dev). Every caller is a local developer with the
	// role admin; credentials only tell callers apart and are not checked.
	Dev bool
	Log *slog.Logger
}

// Authenticator tells whose API key came with a request. It is safe for concurrent use. Close it to have the last
// uses written.
type Authenticator struct {
	cfg   Config
	dummy [32]byte // compared with when no stored key has the hint
	start time.Time
	begun time.Time // start on the machine's clock, for monotonic time

	mu      sync.Mutex
	cache   map[[32]byte]cached
	changes int // counts Forget: a look-up that overlaps one is not cached
	uses    map[string]KeyUse
	met     map[string]bool // ids of keys whose first use was noted; begun anew beyond maxCached

	soon chan struct{} // a key was used for the first time
	stop chan struct{}
	done chan struct{}
	once sync.Once
}

// cached is a key that was good at a time of the machine's clock.
type cached struct {
	key  Key
	who  *Principal
	seen time.Time
}

// NewAuthenticator starts an authenticator.
func NewAuthenticator(cfg Config) (*Authenticator, error) {
	if cfg.Prefix == "" {
		cfg.Prefix = DefaultPrefix
	}
	if err := CheckPrefix(cfg.Prefix); err != nil {
		return nil, err
	}
	a := &Authenticator{
		cfg: cfg, dummy: sha256.Sum256([]byte("no key has this digest")), start: cfg.Clock.Now(), begun: time.Now(),
		cache: map[[32]byte]cached{}, uses: map[string]KeyUse{}, met: map[string]bool{}, soon: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{}),
	}
	go a.touchLoop()
	return a, nil
}

// Authenticate gives the principal of c. For refused credentials it is nil, with the true reason for the audit trail:
// callers must answer all of them alike. An error means that the keys could not be asked.
func (a *Authenticator) Authenticate(ctx context.Context, c Credentials) (p *Principal, reason string, err error) {
	if a.cfg.Dev {
		return devPrincipal(c), "", nil
	}
	switch {
	case c.Malformed:
		return nil, "malformed credentials", nil
	case c.Key == "":
		return nil, "no credentials", nil
	case a.cfg.Keys == nil:
		return nil, "keys are not accepted", nil
	}
	hint, ok := keyHint(c.Key, a.cfg.Prefix)
	if !ok {
		return nil, "not of the form of a key", nil
	}
	digest := keyDigest(c.Key, a.cfg.Pepper)
	hit, ok := a.cached(digest)
	if !ok {
		if hit, ok, err = a.lookUp(ctx, hint, digest); err != nil {
			return nil, "", err
		}
	}
	if !ok {
		return nil, "unknown key with hint " + hint, nil
	}
	now := a.now()
	if !hit.key.Live(now) {
		return nil, deadReason(&hit.key), nil
	}
	a.used(hit.key.ID, now)
	return hit.who, "", nil
}

// now is the wall time, but never less than the start plus the time that has passed since: a clock that is set back
// revives no expired key.
func (a *Authenticator) now() time.Time {
	now, least := a.cfg.Clock.Now(), a.start.Add(time.Since(a.begun))
	if now.Before(least) {
		return least
	}
	return now
}

// deadReason says why a known key is refused.
func deadReason(k *Key) string {
	if !k.RevokedAt.IsZero() {
		return "revoked key " + k.ID
	}
	return "expired key " + k.ID
}

// cached finds a key that was good within cacheFor.
func (a *Authenticator) cached(digest [32]byte) (cached, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	hit, ok := a.cache[digest]
	return hit, ok && time.Since(hit.seen) < cacheFor
}

// lookUp asks the store, and keeps a good key in the cache.
func (a *Authenticator) lookUp(ctx context.Context, hint string, digest [32]byte) (cached, bool, error) {
	a.mu.Lock()
	before := a.changes
	a.mu.Unlock()
	seen := time.Now() // the answer is at least as new as this
	candidates, err := a.cfg.Keys.KeysByHint(ctx, hint)
	if err != nil {
		return cached{}, false, fmt.Errorf("look up a key: %w", err)
	}
	k := a.match(candidates, digest)
	if k == nil {
		return cached{}, false, nil
	}
	hit := cached{key: *k, who: a.principal(k), seen: seen}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.changes == before && k.Live(a.now()) {
		if len(a.cache) >= maxCached {
			clear(a.cache)
		}
		a.cache[digest] = hit
	}
	return hit, true, nil
}

// match compares all candidates in constant time, and a dummy when there is none.
func (a *Authenticator) match(candidates []Key, digest [32]byte) *Key {
	if len(candidates) == 0 {
		subtle.ConstantTimeCompare(a.dummy[:], digest[:])
		return nil
	}
	var found *Key
	for i := range candidates {
		if subtle.ConstantTimeCompare(candidates[i].Digest[:], digest[:]) == 1 {
			found = &candidates[i]
		}
	}
	return found
}

// principal is who a key acts as. A stored scope that cannot be read covers nothing.
func (a *Authenticator) principal(k *Key) *Principal {
	p := newPrincipal(MethodKey, "user:"+k.User, []string{"key:" + k.ID}, k.Roles)
	p.KeyID, p.Tenant = k.ID, k.Tenant
	if k.Only == nil {
		return p
	}
	p.Only = make([]policy.Scope, 0, len(k.Only))
	for _, text := range k.Only {
		s, err := policy.ParseScope(text)
		if err != nil {
			a.cfg.Log.Error("a scope of a key cannot be read and covers nothing", "key", k.ID, "error", err)
			continue
		}
		p.Only = append(p.Only, s)
	}
	return p
}

// devPrincipal is the caller in development mode. Callers with different credentials have different names, which tell
// nothing of the credentials.
func devPrincipal(c Credentials) *Principal {
	subject := "local:dev"
	if c.Key != "" {
		sum := sha256.Sum256([]byte(c.Key))
		subject += "-" + hex.EncodeToString(sum[:6])
	}
	return newPrincipal(MethodDev, subject, nil, []string{policy.RoleAdmin})
}

// Forget drops what is cached of a key: call it when the key has changed. The next request asks the store.
func (a *Authenticator) Forget(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.changes++
	for digest, hit := range a.cache {
		if hit.key.ID == id {
			delete(a.cache, digest)
		}
	}
}

// used counts one use of a key.
func (a *Authenticator) used(id string, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	u := a.uses[id]
	a.uses[id] = KeyUse{ID: id, At: now, Count: u.Count + 1}
	if a.met[id] {
		return
	}
	if len(a.met) >= maxCached {
		clear(a.met)
	}
	a.met[id] = true
	select {
	case a.soon <- struct{}{}:
	default:
	}
}

// touchLoop writes the uses: soon after the first one of a key, and then now and then.
func (a *Authenticator) touchLoop() {
	defer close(a.done)
	tick := time.NewTicker(touchEvery)
	defer tick.Stop()
	var first <-chan time.Time
	for {
		select {
		case <-a.soon:
			if first == nil {
				first = time.After(touchFirst)
			}
		case <-first:
			first = nil
			a.touch()
		case <-tick.C:
			a.touch()
		case <-a.stop:
			return
		}
	}
}

// touch writes the uses and logs a failure.
func (a *Authenticator) touch() {
	ctx, cancel := context.WithTimeout(context.Background(), touchTimeout)
	defer cancel()
	if err := a.flush(ctx); err != nil {
		a.cfg.Log.Warn("uses of keys are not written yet", "error", err)
	}
}

// flush writes the uses since the last time. Those that could not be written are kept for the next.
func (a *Authenticator) flush(ctx context.Context) error {
	a.mu.Lock()
	pending := a.uses
	a.uses = map[string]KeyUse{}
	a.mu.Unlock()
	if len(pending) == 0 {
		return nil
	}
	list := make([]KeyUse, 0, len(pending))
	for _, u := range pending {
		list = append(list, u)
	}
	err := a.cfg.Keys.TouchKeys(ctx, list)
	if err != nil {
		a.putBack(list)
	}
	return err
}

// putBack adds uses that could not be written to those since.
func (a *Authenticator) putBack(list []KeyUse) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, u := range list {
		if since, ok := a.uses[u.ID]; ok {
			u.At, u.Count = since.At, u.Count+since.Count
		}
		a.uses[u.ID] = u
	}
}

// Close writes the last uses. Authenticate may still be called, but what it counts is lost.
func (a *Authenticator) Close(ctx context.Context) error {
	a.once.Do(func() { close(a.stop) })
	<-a.done
	if err := a.flush(ctx); err != nil {
		return fmt.Errorf("write the uses of keys: %w", err)
	}
	return nil
}
