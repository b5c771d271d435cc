package conformance

import (
	"strings"
	"sync"
	"testing"
)

// row is a feature while it runs on a target. It knows which of its cases the target pins.
type row struct {
	feature
	pins map[string]string // of its cases

	mu    sync.Mutex
	asked map[string]bool // the cases that there are: true for one that ran
}

func newRow(f feature, target Target) *row {
	r := &row{feature: f, pins: map[string]string{}, asked: map[string]bool{}}
	for id, pin := range target.Pins {
		if of, name, isCase := strings.Cut(id, "/"); isCase && of == f.id {
			r.pins[name] = pin
		}
	}
	return r
}

// pinned reports whether the target pins the case.
func (r *row) pinned(name string) bool {
	_, pinned := r.pins[name]
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked[name] = !pinned
	return pinned
}

// check fails the row if the target pins a case that the row does not have, and reports whether a case ran, if the row
// has any.
func (r *row) check(t *testing.T) (ran bool) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for name := range r.pins {
		if _, ok := r.asked[name]; !ok && !t.Failed() {
			t.Errorf("Target.Pins names %q, which is no case of %s: its cases are the names of its subtests, with spaces",
				r.id+"/"+name, r.id)
		}
	}
	ran = len(r.asked) == 0
	for _, did := range r.asked {
		ran = ran || did
	}
	return ran
}

// variant runs a case of the row on a bench of its own, unless the target pins the case.
func (b *bench) variant(name string, run func(*bench)) {
	b.Helper()
	b.variantOn(newBench, name, run)
}

func (b *bench) variantOn(bench func(*testing.T, Target) *bench, name string, run func(*bench)) {
	b.Helper()
	path := name
	if b.variantOf != "" {
		path = b.variantOf + "/" + name
	}
	if b.target.row.pinned(path) {
		return
	}
	b.Run(name, func(t *testing.T) {
		b := bench(t, b.target)
		b.variantOf = path
		run(b)
	})
}
