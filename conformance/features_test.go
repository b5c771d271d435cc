package conformance

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/watermill-spillway/spillway/internal/testkit"
)

// The documentation lists every feature, for those who pin them.
func TestFeaturesAreDocumented(t *testing.T) {
	doc := testkit.Must(os.ReadFile("doc.go"))
	for _, f := range features() {
		if line := fmt.Sprintf("//\t%-4s %s\n", f.id, f.title); !strings.Contains(string(doc), line) {
			t.Errorf("doc.go lacks the line %q", line)
		}
	}
}
