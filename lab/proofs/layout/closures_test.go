package layout_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

// closures are the most lines of code, neither blank nor comment, that a program may compile of this project if it
// imports one package. They only fall: what a part drags in is paid by those who use nothing else of it.
var closures = map[string]int{
	"":                      26_900,
	"classify":              1_500,
	"idempotency":           9_500,
	"middleware":            5_600,
	"middleware/breaker":    6_500,
	"middleware/crashlimit": 5_550,
	"middleware/stages":     11_200,
	"naming":                600,
	"poison":                9_200,
	"redrive/console":       32_300,
	"seal":                  700,
}

// Who uses one part compiles little of the others.
func TestClosures(t *testing.T) {
	for name, most := range closures {
		listed := testkit.Must(exec.Command("go", "list", "-deps", "-f", `{{.ImportPath}}{{"\t"}}{{.Dir}}{{"\t"}}{{join .GoFiles "\t"}}`,
			strings.TrimSuffix(module+"/"+name, "/")).Output())
		code := 0
		for line := range strings.Lines(string(listed)) {
			fields := strings.Split(strings.TrimSpace(line), "\t")
			if !strings.HasPrefix(fields[0], module) {
				continue
			}
			for _, file := range fields[2:] {
				code += codeLines(string(testkit.Must(os.ReadFile(filepath.Join(fields[1], file)))))
			}
		}
		testkit.Check(t, code <= most, "a program that imports %q alone compiles %d lines of code of ours, at most %d are allowed: "+
			"cut the edge that is new, or say why here", name, code, most)
		testkit.Check(t, code > most*9/10, "%q compiles %d lines of code now: lower its bound of %d", name, code, most)
	}
}

func codeLines(text string) (n int) {
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "//") {
			n++
		}
	}
	return n
}
