package documents_test

import (
	"os"
	"strings"
	"testing"

	"github.com/watermill-spillway/spillway/internal/testkit"
)

// The quick start of the README is the code of Example, to the letter and at most 10 lines.
func TestReadmeQuickStartCompiles(t *testing.T) {
	readme, source := read(t, "README.md"), read(t, "example_test.go")
	_, rest, _ := strings.Cut(readme, "## Quick start\n\n```go\n")
	shown, _, ok := strings.Cut(rest, "```")
	_, rest, _ = strings.Cut(source, "// begin quick start\n")
	compiled, _, found := strings.Cut(rest, "\t// end quick start")
	if !ok || !found {
		t.Fatal("no quick start in README.md or example_test.go")
	}
	compiled = strings.ReplaceAll("\n"+compiled, "\n\t", "\n")[1:]
	if shown != compiled {
		t.Errorf("README.md shows\n%s\nexample_test.go runs\n%s", shown, compiled)
	}
	if lines := strings.Count(shown, "\n"); lines > 10 {
		t.Errorf("%d lines", lines)
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	text := testkit.Must(os.ReadFile(name))
	return string(text)
}
