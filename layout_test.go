package spillway_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/watermill-spillway/spillway"

// floors says who may know whom: a package imports only packages of its own floor or below. What is not listed here has
// not found its place yet.
var floors = map[string]int{
	"internal/bounded": 0, "internal/contain": 0, "internal/wait": 0, "internal/chain": 0, "internal/sqlite": 0, "internal/services": 0, "classify": 0,
	"internal/schema": 0, "internal/postgres": 0,
	"poison": 1, "idempotency": 1,
	"middleware":                     2,
	"redrive":                        3,
	"":                               4, // the front door
	"internal/postgres/postgrestest": 5, "conformance": 5,
	"internal/figures": 5, "examples/internal/webhooks": 5, "examples/quickstart": 6, "examples/webhooks": 6,
}

// mayKnow are the packages outside of the standard library that the library itself may import. Database drivers and
// broker clients are not among them: they belong in leaves, so that users of one adapter never compile another.
var mayKnow = []string{
	"github.com/ThreeDotsLabs/watermill", "github.com/ThreeDotsLabs/watermill/message",
	"github.com/cenkalti/backoff/v4", "golang.org/x/time/rate",
}

// The rooms are kept by this test: nothing points up, and nothing drags in what it does not exist for.
func TestLayout(t *testing.T) {
	out, err := exec.Command("go", "list", "-f", `{{.ImportPath}} {{join .Imports " "}}`, "./...").Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		name := strings.TrimPrefix(strings.TrimPrefix(fields[0], module), "/")
		floor, known := floors[name]
		if !known {
			t.Errorf("%s has no floor: give it its place in floors", fields[0])
			continue
		}
		for _, imported := range fields[1:] {
			if own, ok := strings.CutPrefix(imported, module); ok {
				if below := floors[strings.TrimPrefix(own, "/")]; below > floor {
					t.Errorf("%s (floor %d) imports %s (floor %d)", name, floor, imported, below)
				}
				continue
			}
			if outside := strings.Contains(strings.SplitN(imported, "/", 2)[0], "."); outside && floor <= 4 && !slices.Contains(mayKnow, imported) {
				t.Errorf("%s imports %s", name, imported)
			}
		}
	}
}
