package migrating_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/watermill-spillway/spillway/internal/testkit"
)

func TestMain(m *testing.M) {
	// A router whose Run fails at start-up leaves this goroutine of its own behind.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/ThreeDotsLabs/watermill/message.(*Router).watchAllHandlersStopped.func1"))
}

// Each statement of docs/migrating.md has a test here, and each test is named there.
func TestMigratingStatementsAreTested(t *testing.T) {
	page := read(t, "../../../docs/migrating.md")
	files := testkit.Must(filepath.Glob("*_test.go"))
	for _, file := range files {
		for line := range strings.Lines(read(t, file)) {
			if rest, ok := strings.CutPrefix(line, "func TestMigrating"); ok {
				name, _, _ := strings.Cut("TestMigrating"+rest, "(")
				if name != "TestMigratingStatementsAreTested" && !strings.Contains(page, "`"+name+"`") {
					t.Errorf("docs/migrating.md does not name %s", name)
				}
			}
		}
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text := testkit.Must(os.ReadFile(path))
	return string(text)
}
