package documents_test

import (
	"flag"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

var update = flag.Bool("update", false, "write the generated pages anew")

// generated writes a page with -update, and otherwise compares it.
func generated(t *testing.T, page, want string) {
	t.Helper()
	if *update {
		testkit.NoError(t, os.WriteFile(page, []byte(want), 0o644))
	}
	have, _ := os.ReadFile(page)
	if string(have) == want {
		return
	}
	lines := strings.Split(string(have), "\n")
	for line := range strings.Lines(want) {
		testkit.Check(t, slices.Contains(lines, strings.TrimSuffix(line, "\n")), "%s lacks %s", page, line)
	}
	t.Errorf("%s is not what the code says: run go test ./lab/proofs/documents -run %s -update, also on a conflict", page, t.Name())
}
