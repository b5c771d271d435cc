// Command bench measures the middlewares alone and prints one JSON object a line: Spillway beside Watermill in the same
// run. "make bench" runs it. The programs below it measure Kafka, SQL pub/sub, the idempotent receiver and retry
// stages.
package main

import (
	"context"
	"errors"
	"flag"
	"io"
	"testing"
	"time"

	"github.com/watermill-spillway/spillway/lab/internal/harness"
)

const rounds = 9

func main() {
	testing.Init()
	harness.Main(10*time.Minute, func(_ context.Context, to io.Writer) error {
		return errors.Join(flag.Set("test.benchtime", "200ms"), happyPath(to), observedHappyPath(to),
			tracedHappyPath(to),
			letterEncode(to))
	})
}

func happyPath(to io.Writer) error {
	var ours, guarded, theirs int64
	medians, err := harness.Alternate(rounds, side(happySpillway, &ours), side(happyGuarded, &guarded),
		side(happyWatermill, &theirs))
	if err != nil {
		return err
	}
	return harness.Print(to, "happy_path", harness.Figure{
		"spillway_ns": harness.Hundredths(medians[0]), "guarded_ns": harness.Hundredths(medians[1]),
		"watermill_ns": harness.Hundredths(medians[2]), "ratio": harness.Hundredths(medians[2] / medians[0]),
		"guarded_ratio": harness.Hundredths(medians[2] / medians[1]), "spillway_allocs": ours,
		"guarded_allocs":   guarded,
		"watermill_allocs": theirs,
	})
}

// observedHappyPath is what metrics add to a success, beside what Watermill's own add to a bare handler.
func observedHappyPath(to io.Writer) error {
	var plain, ours, none, theirs int64
	medians, err := harness.Alternate(rounds, side(happySpillway, &plain), side(happyObserved, &ours),
		side(bare, &none),
		side(bareWatermillObserved, &theirs))
	if err != nil {
		return err
	}
	added, watermill := medians[1]-medians[0], medians[3]-medians[2]
	return harness.Print(to, "observed_happy_path", harness.Figure{
		"spillway_ns": harness.Hundredths(medians[0]), "observed_ns": harness.Hundredths(medians[1]),
		"added_ns": harness.Hundredths(added), "added_allocs": ours - plain,
		"watermill_added_ns": harness.Hundredths(watermill), "watermill_added_allocs": theirs - none,
		"ratio": harness.Hundredths(watermill / added),
	})
}

func letterEncode(to io.Writer) error {
	var whole, encode int64
	medians, err := harness.Alternate(rounds, side(placeLetter, &whole), side(encodeLetter, &encode))
	if err != nil {
		return err
	}
	return harness.Print(to, "letter_encode", harness.Figure{
		"ns": harness.Hundredths(medians[0]), "encode_alone_ns": harness.Hundredths(medians[1]),
		"bytes_added": bytesAdded(),
		"allocs":      whole,
	})
}

// side returns a benchmark as a side of a comparison, in nanoseconds, and notes the most allocations of a round.
func side(bench func(*testing.B), allocs *int64) func() (float64, error) {
	return func() (float64, error) {
		result := testing.Benchmark(bench)
		if result.N == 0 {
			return 0, errors.New("a benchmark failed")
		}
		*allocs = max(*allocs, result.AllocsPerOp())
		return float64(result.T.Nanoseconds()) / float64(result.N), nil
	}
}
