package seal

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tabellion-mcp/tabellion/internal/clock"
)

// A sealed value is base64url without padding of
//
//	version (1) | key id (4) | salt (16) | nonce (12) | AES-256-GCM of { issue (8) | life (8) | plain }
//
// Each value is encrypted under its own key, derived from the ring's key and the salt, so that the number of values
// under one key of the ring needs no bound (a random 96-bit nonce alone would bound it at 2^32).
const (
	version    = 1
	saltSize   = 16
	nonceSize  = 12
	tagSize    = 16
	headerSize = 1 + 4 + saltSize + nonceSize
	timesSize  = 8 + 8
	overhead   = headerSize + timesSize + tagSize
)

// MaxLife is the longest life of a sealed value: that of a cursor.
const MaxLife = 15 * time.Minute

// Times that rule the keys.
const (
	// maxAhead is how far the issue time may lie ahead: clocks of replicas differ a little. More means that the
	// clock was set back, and then nobody knows how old the value is.
	maxAhead = 5 * time.Second
	// rereadSeal is how old the list of keys may be when a value is made. A process that missed a rotation goes on
	// sealing with the old key for at most this long.
	rereadSeal = time.Minute
	// grace is how long a replaced key opens values: their longest life, and the time in which a process may not
	// yet know of the rotation.
	grace = MaxLife + rereadSeal + maxAhead
	// rereadOpen bounds how often an unknown key id makes the ring be read again.
	rereadOpen = time.Second
	// readTimeout bounds one reading of the ring within Seal and Open.
	readTimeout = 2 * time.Second
)

// maxChars bounds a sealed text by its purpose: 2,048 for a cursor (persistence.v1, section 3.6), and enough for
// what an operation wants back for a state.
var maxChars = map[Purpose]int{PurposeCursor: 2048, PurposeState: 64 << 10}

// encoding refuses texts whose unused last bits are set. It still skips line breaks: see decode.
var encoding = base64.RawURLEncoding.Strict()

// ErrTooLong: what was to be sealed does not fit into a text of its purpose.
var ErrTooLong = errors.New("the value is too long to be sealed")

// Sealer seals and opens values under the keys of a ring. It is safe for concurrent use.
type Sealer struct {
	ring   Keyring
	clock  clock.Clock
	random io.Reader

	keys atomic.Pointer[[]Key] // newest first, never empty

	mu   sync.Mutex // held while the ring is read or changed
	read atomic.Int64
	born time.Time // origin of read, for monotonic time
}

// New loads the keys of ring, or makes the first one. The ring is kept for rotations.
func New(ctx context.Context, ring Keyring, clock clock.Clock, random io.Reader) (*Sealer, error) {
	s := &Sealer{ring: ring, clock: clock, random: random, born: time.Now()}
	s.mu.Lock()
	defer s.mu.Unlock()
	keys, err := s.load(ctx)
	if err != nil {
		return nil, err
	}
	if len(keys) > 0 {
		return s, nil
	}
	if err := s.add(ctx, nil); err != nil {
		return nil, err
	}
	return s, nil
}

// load reads the ring. The caller holds mu.
func (s *Sealer) load(ctx context.Context) ([]Key, error) {
	s.read.Store(int64(time.Since(s.born)))
	keys, err := s.ring.SealKeys(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the sealing keys: %w", err)
	}
	if len(keys) > 0 {
		s.keys.Store(&keys)
	}
	return keys, nil
}

// add makes a key that is newer than those known, and forgets those that open nothing any more. When another
// process has added one meanwhile, that one is taken. The caller holds mu.
func (s *Sealer) add(ctx context.Context, known []Key) error {
	k := Key{ID: 1, Created: s.clock.Now().UTC().Truncate(time.Millisecond)}
	if len(known) > 0 {
		k.ID = known[0].ID + 1
		// Creation times rise with the order of the keys even when the clock was set back.
		if least := known[0].Created.Add(time.Millisecond); k.Created.Before(least) {
			k.Created = least
		}
	}
	if _, err := io.ReadFull(s.random, k.Secret[:]); err != nil {
		return fmt.Errorf("make a sealing key: %w", err)
	}
	addErr := s.ring.AddSealKey(ctx, k, forgetBefore(known, k.Created))
	keys, err := s.load(ctx)
	if err != nil {
		return errors.Join(addErr, err)
	}
	if addErr != nil && (len(keys) == 0 || len(known) > 0 && keys[0].ID == known[0].ID) {
		return fmt.Errorf("store a sealing key: %w", addErr)
	}
	if len(keys) == 0 {
		return errors.New("store a sealing key: the ring is empty after one was added")
	}
	return nil
}

// forgetBefore is the creation time of the oldest key that may still be needed at now: a key is replaced when the
// next one is made, and open for grace from then on.
func forgetBefore(keys []Key, now time.Time) time.Time {
	for _, k := range keys {
		if !k.Created.After(now.Add(-grace)) {
			return k.Created
		}
	}
	return time.Time{}
}

// Rotate makes a new key. Values sealed under earlier keys stay good for the rest of their life; those keys open
// nothing after that, and the next rotation forgets them on the ring too.
func (s *Sealer) Rotate(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	keys, err := s.load(ctx)
	if err != nil {
		return err
	}
	return s.add(ctx, keys)
}

// RotateAfter rotates when the newest key is older than age, and tells whether it did.
func (s *Sealer) RotateAfter(ctx context.Context, age time.Duration) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	keys, err := s.load(ctx)
	if err != nil || (len(keys) > 0 && s.clock.Now().Sub(keys[0].Created) < age) {
		return false, err
	}
	return true, s.add(ctx, keys)
}

// reread reads the ring again unless that was done within age. A failure leaves the known keys in use.
func (s *Sealer) reread(age time.Duration) {
	seen := s.read.Load()
	if time.Since(s.born)-time.Duration(seen) < age {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.read.Load() != seen {
		return // somebody else just did
	}
	ctx, cancel := context.WithTimeout(context.Background(), readTimeout)
	defer cancel()
	_, _ = s.load(ctx) // a ring that cannot be read now changes nothing
}

// Seal gives plain as a text that only Open with the same purpose and bind can read, until life has passed. Life is
// positive and at most MaxLife. The text consists of letters, digits, "-" and "_". It fails when there is no
// randomness, or with ErrTooLong.
func (s *Sealer) Seal(p Purpose, life time.Duration, bind, plain []byte) (string, error) {
	if life <= 0 || life > MaxLife {
		return "", fmt.Errorf("seal a %s: a life of %s is not within 0 and %s", p, life, MaxLife)
	}
	size := overhead + len(plain)
	if encoding.EncodedLen(size) > maxChars[p] {
		return "", fmt.Errorf("seal a %s of %d bytes: %w", p, len(plain), ErrTooLong)
	}
	s.reread(rereadSeal)
	key := &(*s.keys.Load())[0]

	out := make([]byte, headerSize, size)
	out[0] = version
	binary.BigEndian.PutUint32(out[1:], key.ID)
	if _, err := io.ReadFull(s.random, out[5:headerSize]); err != nil {
		return "", fmt.Errorf("seal a %s: %w", p, err)
	}
	aead, err := valueKey(key, p, out)
	if err != nil {
		return "", fmt.Errorf("seal a %s: %w", p, err)
	}
	body := make([]byte, timesSize, timesSize+len(plain))
	binary.BigEndian.PutUint64(body, uint64(s.clock.Now().UnixNano()))
	binary.BigEndian.PutUint64(body[8:], uint64(life))
	body = append(body, plain...)
	out = aead.Seal(out, out[5+saltSize:headerSize], body, binding(p, out[:headerSize], bind))
	return encoding.EncodeToString(out), nil
}

// Open gives back what was sealed, or ErrInvalid.
func (s *Sealer) Open(p Purpose, bind []byte, text string) ([]byte, error) {
	sealed, ok := decode(p, text)
	if !ok {
		return nil, ErrInvalid
	}
	key := s.find(binary.BigEndian.Uint32(sealed[1:]))
	if key == nil {
		return nil, ErrInvalid
	}
	header := sealed[:headerSize]
	aead, err := valueKey(key, p, header)
	if err != nil {
		return nil, ErrInvalid
	}
	body, err := aead.Open(nil, header[5+saltSize:], sealed[headerSize:], binding(p, header, bind))
	if err != nil || !s.fresh(body) {
		return nil, ErrInvalid
	}
	return body[timesSize:], nil
}

// decode undoes the text form. There is exactly one text for each sealed value.
func decode(p Purpose, text string) ([]byte, bool) {
	if len(text) > maxChars[p] {
		return nil, false
	}
	for i := range len(text) {
		if text[i] == '\n' || text[i] == '\r' {
			return nil, false // encoding/base64 would skip them
		}
	}
	sealed, err := encoding.DecodeString(text)
	return sealed, err == nil && len(sealed) >= overhead && sealed[0] == version
}

// find is the key of this id that may still open values, or nil.
func (s *Sealer) find(id uint32) *Key {
	if k, known := s.lookUp(id); known {
		return k
	}
	s.reread(rereadOpen)
	k, _ := s.lookUp(id)
	return k
}

// lookUp finds a key among those in memory. A known one is nil when it was replaced too long ago.
func (s *Sealer) lookUp(id uint32) (key *Key, known bool) {
	keys := *s.keys.Load()
	for i := range keys {
		if keys[i].ID != id {
			continue
		}
		if i > 0 && !s.clock.Now().Before(keys[i-1].Created.Add(grace)) {
			return nil, true
		}
		return &keys[i], true
	}
	return nil, false
}

// fresh judges the times in an opened body: issued no later than now, but for maxAhead, and less than its life ago.
func (s *Sealer) fresh(body []byte) bool {
	age := s.clock.Now().UnixNano() - int64(binary.BigEndian.Uint64(body))
	life := int64(binary.BigEndian.Uint64(body[8:]))
	return age >= -int64(maxAhead) && age < life
}

// valueKey derives the key of one value from the ring's key, the purpose and the salt in header.
func valueKey(k *Key, p Purpose, header []byte) (cipher.AEAD, error) {
	secret, err := hkdf.Key(sha256.New, k.Secret[:], header[5:5+saltSize], "tabellion-seal-1 "+string(p), 32)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(secret)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

// binding is what is authenticated beside the content: purpose, header and what the caller binds the value to.
func binding(p Purpose, header, bind []byte) []byte {
	out := make([]byte, 0, len(p)+1+len(header)+len(bind))
	out = append(out, p...)
	out = append(out, 0)
	out = append(out, header...)
	return append(out, bind...)
}
