package boundedtext_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/watermill-spillway/spillway/internal/boundedtext"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

// Feature V3: a count that cannot be one reads as 0.
func TestCount(t *testing.T) {
	for s, want := range map[string]int{
		"0": 0, "1": 1, "007": 7, "1000000": 1_000_000, "1000001": 0, "-1": 0, "": 0, " 1": 0, "1 ": 0, "1.5": 0, "0x10": 0,
		"1_0": 0, "١": 0, "NaN": 0, "1\x00": 0, "9223372036854775808": 0, strings.Repeat("9", 1<<20): 0, "\xff": 0,
	} {
		got := boundedtext.Count(s)
		testkit.Check(t, got == want, "%.30q reads %d, want %d", s, got, want)
	}
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 1_000_000).Draw(t, "n")
		if got := boundedtext.Count(strconv.Itoa(n)); got != n {
			t.Fatalf("%d reads %d", n, got)
		}
		if got := boundedtext.Count(rapid.String().Draw(t, "s")); got < 0 || got > 1_000_000 {
			t.Fatalf("reads %d", got)
		}
	})
}

// Feature D1: a time that cannot be one reads as the zero time.
func TestTime(t *testing.T) {
	for s, want := range map[string]time.Time{
		"2024-05-06T12:00:00Z":                time.Date(2024, 5, 6, 12, 0, 0, 0, time.UTC),
		"2024-05-06T12:00:00.000000001+02:00": time.Date(2024, 5, 6, 10, 0, 0, 1, time.UTC),
		"1970-01-01T00:00:00Z":                time.Unix(0, 0).UTC(),
		"9999-12-31T23:59:59.999999999Z":      time.Date(9999, 12, 31, 23, 59, 59, 999999999, time.UTC),
		"1970-01-01T00:00:00+23:00":           {}, // 1969, once it is UTC
		"9999-12-31T23:59:59-23:00":           {}, // a year of five digits, once it is UTC
		"1969-12-31T23:59:59Z":                {},
		"0001-01-01T00:00:00Z":                {},
		"2024-05-06 12:00:00":                 {},
		"":                                    {},
		"2024-05-06T12:00:00Z\x00":            {},
		"2024-05-06T12:00:00." + strings.Repeat("0", 1<<20) + "Z": {},
	} {
		got := boundedtext.Time(s)
		testkit.Check(t, got == want, "%.40q reads %v, want %v", s, got, want)
	}
}

// Feature D14: values are taken from texts, and short ones from no other word.
func TestErased(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "ann@x.de": "erased", "to ann@x.de, ann@x.de": "to erased, erased", "an": "erased", "an answer": "an answer", "other": "other",
	} {
		testkit.Equal(t, text, boundedtext.Erased(text, []string{"", "an", "ann@x.de"}), want)
	}
}
