package conformance

import (
	"os"
	"slices"

	"github.com/watermill-spillway/spillway/internal/testing/results"
)

// inFirst are rows whose reason both columns of a broker have in common: the chain of the handler, or the publisher. K
// and F rows show what differs, which is the subscriber or the kind of queue.
var inFirst = []string{"R1", "R3", "R4", "R11", "R12d", "R12e", "R12f", "R12g", "D2", "D10", "D11", "D13", "D15", "V2",
	"V8", "H2", "F3", "F4", "F5"}

// SecondColumn returns Target.Only of a broker's second column: in make conformance all rows, and in make test those
// that the first one does not answer for.
func SecondColumn() (ids []string) {
	if os.Getenv(results.Variable) != "" {
		return nil
	}
	for _, f := range features() {
		if !slices.Contains(inFirst, f.id) {
			ids = append(ids, f.id)
		}
	}
	return ids
}
