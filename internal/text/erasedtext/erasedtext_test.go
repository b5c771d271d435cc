package erasedtext

import "testing"

// Feature D14: values are taken from texts, and short ones from no other word.
func TestReplace(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "ann@x.de": "erased", "to ann@x.de, ann@x.de": "to erased, erased", "an": "erased", "an answer": "an answer", "other": "other",
	} {
		if got := Replace(text, []string{"", "an", "ann@x.de"}); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
}
