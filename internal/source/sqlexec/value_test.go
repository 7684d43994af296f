package sqlexec_test

import (
	"testing"

	"github.com/tabellion-mcp/tabellion/internal/source/sqlexec"
)

func TestDecimal(t *testing.T) {
	for in, want := range map[string]string{
		"0": "0", "-0": "0", "-0.00": "0", "1": "1", "+1": "1", "001.50": "1.5", "10.00": "10", ".5": "0.5", "5.": "5", "1e3": "1000", "1.5E-3": "0.0015", "-12.30e1": "-123", "100": "100", "0.000": "0",
		"123456789012345678901234567890.000000001": "123456789012345678901234567890.000000001",
		"": "", ".": "", "NaN": "", "Infinity": "", "1e": "", "1e99999": "", "--1": "", "1 ": "", "0x1": "",
	} {
		got, ok := sqlexec.Decimal(in)
		if got != want || ok != (want != "") {
			t.Errorf("%q: %q, %v; want %q", in, got, ok, want)
		}
	}
}

func TestCompareAndAddDecimal(t *testing.T) {
	inOrder := []string{"-100", "-99.5", "-2", "-1.01", "-1", "-0.5", "0", "0.05", "0.5", "1", "1.01", "2", "9.9", "10", "99.5", "100"}
	for i, a := range inOrder {
		for j, b := range inOrder {
			got := sqlexec.CompareDecimal(a, b)
			if (got < 0) != (i < j) || (got > 0) != (i > j) {
				t.Errorf("%s and %s: %d", a, b, got)
			}
		}
	}
	for _, c := range [][3]string{{"0.1", "0.2", "0.3"}, {"-1", "1.0", "0"}, {"1e2", "0.001", "100.001"}, {"999999999999999999999999", "1", "1000000000000000000000000"}} {
		if got, ok := sqlexec.AddDecimal(c[0], c[1]); !ok || got != c[2] {
			t.Errorf("%s + %s: %s", c[0], c[1], got)
		}
	}
	if _, ok := sqlexec.AddDecimal("1", "x"); ok {
		t.Error("x was added")
	}
}

func TestTimes(t *testing.T) {
	for in, want := range map[string]string{
		"2024-02-29T23:59:59Z": "2024-02-29T23:59:59Z", "2024-02-29 23:59:59": "2024-02-29T23:59:59Z", "2024-02-29 23:59:59.50": "2024-02-29T23:59:59.5Z", "2024-02-29T01:00:00+02:00": "2024-02-28T23:00:00Z",
		"2024-02-29 01:00:00+02": "2024-02-28T23:00:00Z", "2024-02-29": "2024-02-29T00:00:00Z", "2024-02-29 10:20": "2024-02-29T10:20:00Z",
		"2023-02-29": "", "0000-00-00 00:00:00": "", "infinity": "", "": "", "12:00": "", "20240229": "", "10000-01-01 00:00:00+00": "", "0044-03-15 00:00:00+00 BC": "",
	} {
		got, ok := sqlexec.Timestamp(in)
		if got.Str() != want || ok != (want != "") {
			t.Errorf("%q: %q, %v; want %q", in, got.Str(), ok, want)
		}
	}
	for in, want := range map[string]string{"2024-02-29": "2024-02-29", "2024-02-29 00:00:00": "2024-02-29", "2024-02-29T00:00:00Z": "2024-02-29", "2024-02-29 00:00:01": "", "x": ""} {
		if got, ok := sqlexec.Day(in); got.Str() != want || ok != (want != "") {
			t.Errorf("%q: %q, %v; want %q", in, got.Str(), ok, want)
		}
	}
	for in, want := range map[string]string{"AAAAAAAA-0000-4000-8000-00000000000F": "aaaaaaaa-0000-4000-8000-00000000000f", "aaaaaaaa00004000800000000000000f": "", "g0000000-0000-4000-8000-000000000000": "", "": ""} {
		if got, ok := sqlexec.UUID(in); got.Str() != want || ok != (want != "") {
			t.Errorf("%q: %q, %v; want %q", in, got.Str(), ok, want)
		}
	}
}
