package series

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"
)

func TestText(t *testing.T) {
	const most = 100
	for value, want := range map[string]string{
		"":                          "",
		"billing":                   "billing",
		"a\nb\x7f":                  "a�b�",
		"größe":                     "größe",
		"a\u202eb\u2066c\u0085":     "a�b�c�",
		"\xff":                      "�",
		strings.Repeat("x", most+1): strings.Repeat("x", most),
		strings.Repeat("ü", most+1): strings.Repeat("ü", most),
	} {
		if got := Text(value, most); got != want || !utf8.ValidString(got) {
			t.Errorf("%q became %q, want %q", value, got, want)
		}
	}
	if got := Text("billing", 4); got != "bill" {
		t.Errorf("cut to %q", got)
	}
}

// Feature O1: labels have at most as many values as they may, and each one more is counted.
func TestValues(t *testing.T) {
	const most, callers, each = 5, 8, 100
	var mu sync.Mutex
	folded := map[string]int{}
	values := NewFew(most, 100, func(label string) {
		mu.Lock()
		defer mu.Unlock()
		folded[label]++
	})
	got := map[string]int{}
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for i := range each {
				value := values.Of("topic", fmt.Sprint("topic ", i))
				mu.Lock()
				got[value]++
				mu.Unlock()
			}
		})
	}
	all.Wait()
	if len(got) != most+1 || got[Other] != callers*(each-most) || folded["topic"] != got[Other] {
		t.Errorf("%d values, folded %v times: %v", len(got), folded, got)
	}
	if v := values.Of("handler", "billing"); v != "billing" {
		t.Errorf("another label's value became %q", v)
	}
	if v := NewFew(0, 100, nil).Of("topic", "billing"); v != Other {
		t.Errorf("without room a value became %q", v)
	}
}

func TestOfAllocates(t *testing.T) {
	values := NewFew(1, 100, nil)
	values.Of("topic", "billing")
	if n := testing.AllocsPerRun(100, func() { values.Of("topic", "billing") }); n != 0 {
		t.Errorf("%v allocations for a value that is known", n)
	}
}
