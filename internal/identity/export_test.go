package identity

import "strings"

// KeyWithHint is a well-formed key with the given hint and no other entropy, for tests.
func KeyWithHint(prefix, hint string) string {
	entropy := hint + strings.Repeat("0", entropyLen-len(hint))
	return prefix + "_" + entropy + checksum(entropy)
}
