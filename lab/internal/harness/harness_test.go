package harness_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/lab/internal/harness"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The sides take turns, the first round is not counted, and medians do not sort the values.
func TestAlternate(t *testing.T) {
	var turns []string
	a, b := []float64{100, 1, 9, 2}, []float64{100, 5, 5, 5}
	side := func(name string, values []float64) func() (float64, error) {
		return func() (float64, error) {
			turns = append(turns, name)
			value := values[0]
			values = values[1:]
			return value, nil
		}
	}
	medians, err := harness.Alternate(3, side("a", a), side("b", b))
	testkit.Check(t, err == nil && slices.Equal(medians, []float64{2, 5}) && strings.Join(turns, "") == "abababab",
		"%v %v %v", medians, err, turns)
	values := []float64{3, 1, 2}
	testkit.Check(t, harness.Median(values) == 2 && values[0] == 3, "%v", values)
	boom := errors.New("boom")
	testkit.Is(t, testkit.Err(harness.Alternate(1, func() (float64, error) { return 0, boom })), boom)
}
