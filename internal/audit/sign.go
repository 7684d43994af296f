package audit

import (
	"bytes"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
)

// keyFile holds the signing key: PKCS #8 in PEM, mode 0600, beside the store.
const keyFile = "audit.key"

// headTime is how a head's time is signed. A store keeps at least milliseconds.
const headTime = "2006-01-02T15:04:05.000Z"

// Signer signs heads of chains. It is immutable and safe for concurrent use.
type Signer struct{ key ed25519.PrivateKey }

// OpenSigner reads the signing key in dir, or makes one. A key file that others can read is refused.
func OpenSigner(dir string, random io.Reader) (*Signer, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open the audit key: %w", err)
	}
	defer root.Close()
	key, err := readKey(root)
	if errors.Is(err, fs.ErrNotExist) {
		key, err = makeKey(root, random)
	}
	if err != nil {
		return nil, fmt.Errorf("open the audit key: %w", err)
	}
	return &Signer{key}, nil
}

// readKey reads and checks the key file.
func readKey(root *os.Root) (ed25519.PrivateKey, error) {
	f, err := root.Open(keyFile)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("%s has mode %s; it must be a file with mode 0600", keyFile, info.Mode())
	}
	text, err := io.ReadAll(io.LimitReader(f, 4096))
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, fmt.Errorf("%s holds no PEM block", keyFile)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", keyFile, err)
	}
	key, ok := parsed.(ed25519.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("%s holds a %T, not an Ed25519 key", keyFile, parsed)
	}
	return key, nil
}

// makeKey makes a key and stores it durably before it is used: under a temporary name first, so that a crash leaves
// no half key. When another process stored one meanwhile, that one is taken.
func makeKey(root *os.Root, random io.Reader) (ed25519.PrivateKey, error) {
	drawn := make([]byte, ed25519.SeedSize+8) // and the temporary name
	if _, err := io.ReadFull(random, drawn); err != nil {
		return nil, err
	}
	seed, name := drawn[:ed25519.SeedSize], drawn[ed25519.SeedSize:]
	der, err := x509.MarshalPKCS8PrivateKey(ed25519.NewKeyFromSeed(seed))
	if err != nil {
		return nil, err
	}
	temp := keyFile + "." + hex.EncodeToString(name)
	if err := writeSynced(root, temp, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})); err != nil {
		return nil, err
	}
	err = root.Link(temp, keyFile)
	removed := root.Remove(temp)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	if removed != nil {
		return nil, removed
	}
	if err := syncFolder(root); err != nil {
		return nil, err
	}
	return readKey(root)
}

// writeSynced makes a new file of mode 0600.
func writeSynced(root *os.Root, name string, text []byte) error {
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Sync(), f.Close())
}

// syncFolder makes names in the folder durable.
func syncFolder(root *os.Root) error {
	d, err := root.Open(".")
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Public is the key that Verify needs.
func (s *Signer) Public() ed25519.PublicKey { return s.key.Public().(ed25519.PublicKey) }

// Sign sets h.Signature over everything else in h.
func (s *Signer) Sign(h *Head) { h.Signature = ed25519.Sign(s.key, h.signed()) }

// signedBy tells whether one of keys made h's signature.
func (h *Head) signedBy(keys []ed25519.PublicKey) bool {
	text := h.signed()
	for _, k := range keys {
		if ed25519.Verify(k, text, h.Signature) {
			return true
		}
	}
	return false
}

// signed is the text under a head's signature.
func (h *Head) signed() []byte {
	cites := make([]canonjson.Value, len(h.Cites))
	for i, c := range h.Cites {
		cites[i] = canonjson.Object(place(c.Writer, c.Position, c.Hash)...)
	}
	m := append(place(h.Writer, h.Position, h.Hash),
		canonjson.M("at", canonjson.String(h.At.UTC().Format(headTime))), canonjson.M("cites", canonjson.Array(cites...)))
	return canonjson.Object(m...).AppendCanonical([]byte("tabellion-audit-head-1\x00"))
}

// place names a point of a chain.
func place(writer string, position int64, hash [32]byte) []canonjson.Member {
	return []canonjson.Member{
		canonjson.M("hash", canonjson.String(hex.EncodeToString(hash[:]))),
		canonjson.M("position", canonjson.Int(position)),
		canonjson.M("writer", canonjson.String(writer)),
	}
}

// tips are the points that a new writer cites: the newest heads of the others, without those that one of the others
// cites already. So a head that follows many restarts cites one writer, and through it all before.
func tips(heads []Head, writer string) []Cite {
	var out []Cite
	for _, h := range heads {
		if h.Writer != writer && !cited(heads, &h) {
			out = append(out, Cite{Writer: h.Writer, Position: h.Position, Hash: h.Hash})
		}
	}
	return out
}

// cited tells whether another head cites h at its very position.
func cited(heads []Head, h *Head) bool {
	for _, other := range heads {
		for _, c := range other.Cites {
			if other.Writer != h.Writer && c.Writer == h.Writer && c.Position == h.Position && bytes.Equal(c.Hash[:], h.Hash[:]) {
				return true
			}
		}
	}
	return false
}
