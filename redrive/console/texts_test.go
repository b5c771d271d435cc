package console

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var called = regexp.MustCompile(`\btext(?:\(| \(?)"([a-z][a-z0-9._-]*)"( ?\+)?`)

// said is a word of a decision, which each decision that needs it has a text for.
var said = regexp.MustCompile(`\.Says(?:\(| )"([a-z.]+)"`)

// Each text that a page or a template asks for is there, and each that is there is asked for.
func TestTexts(t *testing.T) {
	asked, begins := map[string]bool{}, []string{}
	for _, pattern := range []string{"*.go", "templates/*.html"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			source, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, found := range said.FindAllStringSubmatch(string(source), -1) {
				asked["decide.discard."+found[1]], asked["decide.restore."+found[1]] = true, true
			}
			for _, found := range called.FindAllStringSubmatch(string(source), -1) {
				if found[1] == "decide." { // of Says
					continue
				}
				if found[2] != "" { // followed by a value
					begins = append(begins, found[1])
				} else if asked[found[1]] = true; texts[found[1]] == "" {
					t.Errorf("%s asks for the text %q, which texts.go lacks", file, found[1])
				}
			}
		}
	}
	for key := range texts {
		used := asked[key]
		for _, begin := range begins {
			used = used || strings.HasPrefix(key, begin)
		}
		if !used {
			t.Errorf("nothing asks for the text %q", key)
		}
	}
}

// Numbers are grouped, and the first one chooses between the forms.
func TestTextForms(t *testing.T) {
	for want, got := range map[string]string{
		"1 letter": text("letters", 1), "1,312 letters": text("letters", 1312), "0 letters": text("letters", 0),
		"-1,234,567": grouped(-1_234_567), "999": grouped(999), "1,000": grouped(1000),
		"1 byte": size(1), "1.0 KiB": size(1024), "10.0 MiB": size(10 << 20), "2.0 GiB": size(2 << 30),
		"in the future": age(-1), "less than a minute": age(1), "1 min": age(90e9), "47 hours": age(47 * 3600e9), "2 days": age(50 * 3600e9),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
