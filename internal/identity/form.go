package identity

import (
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"hash/crc32"
	"io"
	"strings"
)

// The form of an API key (context specification, section 13): prefix, "_", 30 random characters of base62 (178 bits),
// and 6 of a checksum that catches typing errors without a look-up and lets secret scanners know a key.
const (
	base62        = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	entropyLen    = 30
	checksumLen   = 6
	hintLen       = 8
	DefaultPrefix = "tbl"
)

// CheckPrefix refuses a prefix of keys that is not 2 to 8 lower-case letters.
func CheckPrefix(prefix string) error {
	if len(prefix) < 2 || len(prefix) > 8 || strings.Trim(prefix, "abcdefghijklmnopqrstuvwxyz") != "" {
		return fmt.Errorf("key prefix %q is not 2 to 8 lower-case letters", prefix)
	}
	return nil
}

// NewKeyText draws a key without bias.
func NewKeyText(prefix string, random io.Reader) (string, error) {
	entropy := make([]byte, 0, entropyLen)
	var block [entropyLen + 2]byte
	for len(entropy) < entropyLen {
		if _, err := io.ReadFull(random, block[:]); err != nil {
			return "", fmt.Errorf("draw a key: %w", err)
		}
		for _, b := range block {
			// 248 is the largest multiple of 62 in a byte: what lies above would favour some characters.
			if b < 248 && len(entropy) < entropyLen {
				entropy = append(entropy, base62[b%62])
			}
		}
	}
	return prefix + "_" + string(entropy) + checksum(string(entropy)), nil
}

// checksum is the CRC-32 (IEEE) of the random characters in base62, padded to six.
func checksum(entropy string) string {
	n := crc32.ChecksumIEEE([]byte(entropy))
	var out [checksumLen]byte
	for i := checksumLen - 1; i >= 0; i-- {
		out[i] = base62[n%62]
		n /= 62
	}
	return string(out[:])
}

// keyHint tells whether text has the form of a key with this prefix, checksum included, and gives its hint: the first
// 8 characters after the prefix, by which stored keys are looked up and shown.
func keyHint(text, prefix string) (hint string, ok bool) {
	rest, ok := strings.CutPrefix(text, prefix+"_")
	if !ok || len(rest) != entropyLen+checksumLen || strings.Trim(rest, base62) != "" {
		return "", false
	}
	if checksum(rest[:entropyLen]) != rest[entropyLen:] {
		return "", false
	}
	return rest[:hintLen], true
}

// keyDigest is what is stored of a key: its SHA-256, or the HMAC-SHA-256 with the server's pepper. A key has full
// entropy, so that a slow hash would add nothing.
func keyDigest(text string, pepper []byte) (digest [32]byte) {
	if len(pepper) == 0 {
		return sha256.Sum256([]byte(text))
	}
	mac := hmac.New(sha256.New, pepper)
	mac.Write([]byte(text))
	mac.Sum(digest[:0])
	return digest
}
