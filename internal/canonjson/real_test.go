package canonjson_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
)

// realDir returns a folder of public test material, or skips the test where there is none.
func realDir(t *testing.T, path ...string) string {
	t.Helper()
	root := os.Getenv("TABELLION_REAL")
	if root == "" {
		t.Skip("NOT RUN: TABELLION_REAL does not name the public test material, so " + filepath.Join(path...) + " was not tried")
	}
	dir := filepath.Join(append([]string{root}, path...)...)
	if _, err := os.Stat(dir); err != nil {
		t.Fatalf("TABELLION_REAL is set, but %v", err)
	}
	return dir
}

// readFile returns the content of a file.
func readFile(t *testing.T, path ...string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// refusedByRule lists the y_ texts of the JSON test suite, which are JSON, that a written
// rule refuses all the same.
var refusedByRule = map[string]canonjson.Rule{
	"y_object_duplicated_key.json":           canonjson.DuplicateName,
	"y_object_duplicated_key_and_value.json": canonjson.DuplicateName,
}

// notJSON is the verdict on a text with a syntax error.
const notJSON canonjson.Rule = "not JSON"

// undecided records our verdict on every i_ text of the JSON test suite, where a parser may
// do either. none means accepted.
var undecided = map[string]canonjson.Rule{
	"i_number_double_huge_neg_exp.json":                   none,
	"i_number_huge_exp.json":                              canonjson.NumberRange,
	"i_number_neg_int_huge_exp.json":                      canonjson.NumberRange,
	"i_number_pos_double_huge_exp.json":                   canonjson.NumberRange,
	"i_number_real_neg_overflow.json":                     canonjson.NumberRange,
	"i_number_real_pos_overflow.json":                     canonjson.NumberRange,
	"i_number_real_underflow.json":                        none,
	"i_number_too_big_neg_int.json":                       canonjson.NumberExact,
	"i_number_too_big_pos_int.json":                       none,
	"i_number_very_big_negative_int.json":                 canonjson.NumberExact,
	"i_object_key_lone_2nd_surrogate.json":                canonjson.LoneSurrogate,
	"i_string_1st_surrogate_but_2nd_missing.json":         canonjson.LoneSurrogate,
	"i_string_1st_valid_surrogate_2nd_invalid.json":       canonjson.LoneSurrogate,
	"i_string_UTF-16LE_with_BOM.json":                     notJSON,
	"i_string_UTF-8_invalid_sequence.json":                notJSON,
	"i_string_UTF8_surrogate_U+D800.json":                 notJSON,
	"i_string_incomplete_surrogate_and_escape_valid.json": canonjson.LoneSurrogate,
	"i_string_incomplete_surrogate_pair.json":             canonjson.LoneSurrogate,
	"i_string_incomplete_surrogates_escape_valid.json":    canonjson.LoneSurrogate,
	"i_string_invalid_lonely_surrogate.json":              canonjson.LoneSurrogate,
	"i_string_invalid_surrogate.json":                     canonjson.LoneSurrogate,
	"i_string_invalid_utf-8.json":                         notJSON,
	"i_string_inverted_surrogates_U+1D11E.json":           canonjson.LoneSurrogate,
	"i_string_iso_latin_1.json":                           notJSON,
	"i_string_lone_second_surrogate.json":                 canonjson.LoneSurrogate,
	"i_string_lone_utf8_continuation_byte.json":           notJSON,
	"i_string_not_in_unicode_range.json":                  notJSON,
	"i_string_overlong_sequence_2_bytes.json":             notJSON,
	"i_string_overlong_sequence_6_bytes.json":             notJSON,
	"i_string_overlong_sequence_6_bytes_null.json":        notJSON,
	"i_string_truncated-utf-8.json":                       notJSON,
	"i_string_utf16BE_no_BOM.json":                        notJSON,
	"i_string_utf16LE_no_BOM.json":                        notJSON,
	"i_structure_500_nested_arrays.json":                  canonjson.TooDeep,
	"i_structure_UTF-8_BOM_empty_object.json":             notJSON,
}

// verdict judges a text: a rule, notJSON or none.
func verdict(text []byte) canonjson.Rule {
	v, flaw, err := canonjson.Parse(text, canonjson.Limits{})
	switch {
	case err != nil:
		return notJSON
	case flaw != nil:
		return flaw.Rule
	case v.IsAbsent():
		return "accepted without a value"
	}
	return none
}

// TestJSONTestSuite runs nst/JSONTestSuite, each text as the whole frame and as a payload.
func TestJSONTestSuite(t *testing.T) {
	dir := realDir(t, "json-test-suite", "test_parsing")
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil || len(files) < 300 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	seen := map[byte]int{}
	for _, file := range files {
		name := filepath.Base(file)
		seen[name[0]]++
		t.Run(name, func(t *testing.T) {
			text := readFile(t, file)
			got := verdict(text)
			checkVerdict(t, name, got)
			embedded := append(append([]byte(`{"p":`), text...), '}')
			if inside := verdict(embedded); inside != got && name[0] != 'n' {
				t.Errorf("as a payload: %q, as the frame: %q", inside, got)
			} else if name[0] == 'n' && inside == none {
				t.Error("accepted as a payload")
			}
		})
	}
	if seen['n'] < 180 || seen['y'] < 90 || seen['i'] != len(undecided) {
		t.Errorf("%d texts must be refused, %d accepted, %d may be either (%d recorded)", seen['n'], seen['y'], seen['i'], len(undecided))
	}
}

// checkVerdict compares a verdict with what the name of the file asks for.
func checkVerdict(t *testing.T, name string, got canonjson.Rule) {
	t.Helper()
	want, recorded := none, true
	switch name[0] {
	case 'n':
		if got == none {
			t.Error("accepted, must be refused")
		}
		return
	case 'y':
		want = refusedByRule[name]
	case 'i':
		want, recorded = undecided[name]
	}
	if got != want || !recorded {
		t.Errorf("verdict %q, want %q (recorded: %v)", got, want, recorded)
	}
}

// TestCanonicalizationPairs runs the pairs of cyberphone/json-canonicalization.
func TestCanonicalizationPairs(t *testing.T) {
	dir := realDir(t, "json-canonicalization", "testdata")
	inputs, err := filepath.Glob(filepath.Join(dir, "input", "*.json"))
	if err != nil || len(inputs) < 6 {
		t.Fatalf("%d inputs, %v", len(inputs), err)
	}
	for _, input := range inputs {
		name := strings.TrimSuffix(filepath.Base(input), ".json")
		t.Run(name, func(t *testing.T) {
			got := mustParse(t, string(readFile(t, input))).AppendCanonical(nil)
			if want := readFile(t, dir, "output", name+".json"); !bytes.Equal(got, want) {
				t.Errorf("%s\nwant %s", got, want)
			}
			digits := strings.Join(strings.Fields(string(readFile(t, dir, "outhex", name+".txt"))), "")
			if want, err := hex.DecodeString(digits); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%x\nwant %x, %v", got, want, err)
			}
			if again := mustParse(t, string(got)).AppendCanonical(nil); !bytes.Equal(again, got) {
				t.Errorf("again %s", again)
			}
		})
	}
}

// numberSums are the SHA-256 of the first lines of the number sequence of
// cyberphone/json-canonicalization, by how many lines.
var numberSums = map[int]string{
	1_000:   "be18b62b6f69cdab33a7e0dae0d9cfa869fda80ddc712221570f9f40a5878687",
	10_000:  "b9f7a8e75ef22a835685a52ccba7f7d6bdc99e34b010992cbc5864cd12be6892",
	100_000: "22776e6d4b49fa294a0d0f349268e5c28808fe7e0cb2bcbe28f63894e494d4c7",
}

// TestNumberSequence spells the numbers of that sequence: a list of edge cases, 2,000 numbers
// around the smallest normal one, then a chain of hashes read as binary64.
func TestNumberSequence(t *testing.T) {
	const last = 100_000
	sum := sha256.New()
	lines := 0
	write := func(bits uint64) {
		if lines == last {
			return
		}
		line := strconv.AppendUint(nil, bits, 16)
		line = canonjson.Float(math.Float64frombits(bits)).AppendCanonical(append(line, ','))
		sum.Write(append(line, '\n'))
		lines++
		if want, ok := numberSums[lines]; ok && fmt.Sprintf("%x", sum.Sum(nil)) != want {
			t.Errorf("the first %d lines have another hash", lines)
		}
	}
	for _, bits := range edgeNumbers(t) {
		write(bits)
	}
	for i := range uint64(2000) {
		write(0x0010000000000000 + i)
	}
	for block := [32]byte{}; lines < last; {
		block = sha256.Sum256(block[:])
		for i := 0; i < len(block); i += 8 {
			bits := binary.LittleEndian.Uint64(block[i:])
			if f := math.Float64frombits(bits); f != 0 && !math.IsNaN(f) && !math.IsInf(f, 0) {
				write(bits)
			}
		}
	}
}

// edgeNumbers reads the list of edge cases.
func edgeNumbers(t *testing.T) (bits []uint64) {
	t.Helper()
	list, _, ok := strings.Cut(string(readFile(t, realDir(t, "json-canonicalization", "testdata"), "numgen.js")), "])")
	if !ok {
		t.Fatal("no list of edge cases")
	}
	for _, m := range regexp.MustCompile(`0x([0-9a-f]{16})n`).FindAllStringSubmatch(list, -1) {
		n, err := strconv.ParseUint(m[1], 16, 64)
		if err != nil {
			t.Fatal(err)
		}
		bits = append(bits, n)
	}
	return bits
}
