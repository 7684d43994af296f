package catalog

import (
	"crypto/sha256"
	"encoding/hex"
)

// digest is the first 16 hex characters of the SHA-256 of text: enough to tell surfaces apart in a log.
func digest(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}
