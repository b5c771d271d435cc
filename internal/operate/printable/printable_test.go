package printable_test

import (
	"fmt"
	"strings"
	"testing"
	"unicode"

	"github.com/watermill-spillway/spillway/internal/operate/printable"
)

func Example() {
	fmt.Println(printable.Text("pay \u202egpj.exe\x1b[2J\x00"))
	fmt.Println(printable.Cell("=HYPERLINK(\"http://evil\")"))
	// Output:
	// pay \u202egpj.exe\x1b[2J\x00
	// '=HYPERLINK("http://evil")
}

func FuzzText(f *testing.F) {
	f.Add("a\u202eb\x00\xff\u200b\n")
	f.Fuzz(func(t *testing.T, s string) {
		for _, r := range printable.Text(s) {
			if !unicode.IsPrint(r) {
				t.Fatalf("%q has %U", s, r)
			}
		}
		if block := printable.Block(s); strings.ContainsAny(block, "\x00\x1b\u202e") {
			t.Fatalf("%q has a control", block)
		}
	})
}
