package identity

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"strings"
	"testing"
	"testing/iotest"
)

// The vectors are those of the context specification, section 13.
func TestKeyVectors(t *testing.T) {
	for _, tt := range []struct{ entropy, key, sha256 string }{
		{"000000000000000000000000000000", "ctx_0000000000000000000000000000002C8GjS", "e5e43f9ccad45d9562f496a3ff934b81893921c737eedd6fe65b8593b9a65371"},
		{"abcdefghijklmnopqrstuvwxyz0123", "ctx_abcdefghijklmnopqrstuvwxyz01232LolCm", "6d2ee411d5e0a6f5167a2643f6e381c69ec85d46411a23317944bb47e3c77655"},
	} {
		if got := "ctx_" + tt.entropy + checksum(tt.entropy); got != tt.key {
			t.Errorf("key %s, want %s", got, tt.key)
		}
		if hint, ok := keyHint(tt.key, "ctx"); !ok || hint != tt.entropy[:8] {
			t.Errorf("hint of %s: %q, %v", tt.key, hint, ok)
		}
		if got := keyDigest(tt.key, nil); hex.EncodeToString(got[:]) != tt.sha256 {
			t.Errorf("digest of %s: %x, want %s", tt.key, got, tt.sha256)
		}
	}
}

// The HMAC vector is test case 2 of RFC 4231.
func TestPepperedDigest(t *testing.T) {
	got := keyDigest("what do ya want for nothing?", []byte("Jefe"))
	if want := "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"; hex.EncodeToString(got[:]) != want {
		t.Errorf("digest %x, want %s", got, want)
	}
}

func TestChecksumPadding(t *testing.T) {
	seen := false
	for i := range 10_000 { // a checksum below 62^5 is padded; one in five is
		c := checksum(strings.Repeat("a", i%7) + hex.EncodeToString([]byte{byte(i), byte(i >> 8)}))
		if len(c) != 6 {
			t.Fatalf("checksum %q has %d characters", c, len(c))
		}
		seen = seen || c[0] == '0'
	}
	if !seen {
		t.Error("no checksum was padded")
	}
}

func TestKeyShape(t *testing.T) {
	good := "ctx_abcdefghijklmnopqrstuvwxyz01232LolCm"
	for i := range good {
		for _, c := range "0Az_-\n é" {
			text := good[:i] + string(c) + good[i+1:]
			if _, ok := keyHint(text, "ctx"); ok && text != good {
				t.Errorf("%q has the form of a key", text)
			}
		}
	}
	for _, text := range []string{"", "x", "ctx", "ctx_", good[:39], good + "0", " " + good, good + " ", strings.ToUpper(good), "tbl" + good[3:], good[4:]} {
		if _, ok := keyHint(text, "ctx"); ok {
			t.Errorf("%q has the form of a key", text)
		}
	}
	if _, ok := keyHint(good, "ctx"); !ok {
		t.Error("the control is refused")
	}
}

func TestNewKeyText(t *testing.T) {
	counts := map[rune]int{}
	seen := map[string]bool{}
	for range 2000 {
		text, err := NewKeyText("tbl", rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := keyHint(text, "tbl"); !ok || seen[text] {
			t.Fatalf("key %s is malformed or came twice", text)
		}
		seen[text] = true
		for _, c := range text[4:34] {
			counts[c]++
		}
	}
	// 60,000 characters of 62 kinds: 968 each, standard deviation 31. A bias of b%62 would give 8 kinds 1171.
	for _, c := range base62 {
		if n := counts[c]; n < 968-6*31 || n > 968+6*31 {
			t.Errorf("character %c came %d times, want about 968", c, n)
		}
	}
	if _, err := NewKeyText("tbl", iotest.ErrReader(iotest.ErrTimeout)); err == nil {
		t.Error("a key was drawn without randomness")
	}
}

// Bytes of 248 and more are thrown away, not folded.
func TestNoBias(t *testing.T) {
	random := bytes.NewReader(append(bytes.Repeat([]byte{255, 248, 251, 254}, 8), bytes.Repeat([]byte{61}, 32)...))
	text, err := NewKeyText("tbl", random)
	if err != nil || text[:34] != "tbl_"+strings.Repeat("z", 30) {
		t.Errorf("key %q, %v; want only z", text, err)
	}
}

func TestCheckPrefix(t *testing.T) {
	for prefix, ok := range map[string]bool{"tbl": true, "ab": true, "abcdefgh": true, "a": false, "": false, "abcdefghi": false, "Tbl": false, "t1": false, "t_": false} {
		if (CheckPrefix(prefix) == nil) != ok {
			t.Errorf("prefix %q: allowed is not %v", prefix, ok)
		}
	}
}

func FuzzKeyHint(f *testing.F) {
	f.Add("tbl_abcdefghijklmnopqrstuvwxyz01232LolCm")
	f.Add("tbl_")
	f.Fuzz(func(t *testing.T, text string) {
		hint, ok := keyHint(text, "tbl")
		if !ok {
			return
		}
		if len(text) != 40 || text[4:12] != hint || text[:4] != "tbl_" || checksum(text[4:34]) != text[34:] {
			t.Errorf("%q passed with hint %q", text, hint)
		}
	})
}
