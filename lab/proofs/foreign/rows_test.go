package foreign_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

// A package that has rows of other modules' types has facts of them: package facts fails for a row that no test meets.
func TestPackagesWithRowsHaveFacts(t *testing.T) {
	sources := string(testkit.Must(exec.Command("grep", "-rlE", `\bRowOf\(`, "--include=*.go", "--exclude=*_test.go", "../../..").Output()))
	for _, file := range strings.Fields(sources) {
		tests := testkit.Must(filepath.Glob(filepath.Join(filepath.Dir(file), "*_test.go")))
		has := false
		for _, test := range tests {
			has = has || strings.Contains(string(testkit.Must(os.ReadFile(test))), "facts.Of(")
		}
		testkit.Check(t, has, "%s has rows, and no test of its package calls facts.Of", file)
	}
	testkit.Check(t, len(strings.Fields(sources)) >= 5, "%d packages with rows", len(strings.Fields(sources)))
}
