package harness_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/watermill-spillway/spillway/examples/measures/harness"
	"github.com/watermill-spillway/spillway/internal/testkit"
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
	if _, err := harness.Alternate(1, func() (float64, error) { return 0, boom }); err != boom {
		t.Error(err)
	}
}

// A line that lacks a figure, or has nothing to say, is not complete.
func TestComplete(t *testing.T) {
	var out strings.Builder
	testkit.NoError(t, harness.Print(&out, "name", harness.Figure{"per_s": harness.Whole(2.5), "lost": 0}))
	testkit.NoError(t, harness.Complete(out.String(), "figure=name per_s=3 lost?"))
	for _, want := range [][]string{{"figure=other"}, {"lost"}, {"none?"}, {}, {"per_s", "per_s"}} {
		testkit.Check(t, harness.Complete(out.String(), want...) != nil, "%q", want)
	}
}
