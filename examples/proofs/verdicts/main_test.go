// Package verdicts_test judges errors of modules that the library does not require.
package verdicts_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/watermill-spillway/spillway/classify"
)

func judge(err error) classify.Verdict { return (*classify.Classifier)(nil).Classify(err) }

// check judges err bare, below a layer, and beside an unknown error.
func check(t *testing.T, name string, err error, want classify.Class) {
	t.Helper()
	if err == nil {
		t.Fatalf("%s: no error", name)
	}
	for place, err := range map[string]error{"bare": err, "wrapped": fmt.Errorf("w: %w", err), "joined": errors.Join(errors.New("a"), err)} {
		if v := judge(err); v.Class != want {
			t.Errorf("%s, %s: %v, want %v: %T %v", name, place, v.Class, want, err, err)
		}
	}
}
