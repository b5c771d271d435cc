// Package harness is what the programs that measure share: JSON lines, rounds, medians, the message, and the databases
// and the Kafka that are measured.
//
// The machine is shared, so one number says little. Both sides of a comparison are measured in alternating rounds, and
// the medians of the rounds are compared.
package harness

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
)

// progress is where a program says how far it is: standard error, and nothing in a test.
var progress io.Writer = io.Discard

// Main prints what the figures hold for, calls measure with a context that ends after limit, and exits with 1 if it
// fails. Meanwhile standard error has a line for each round.
func Main(limit time.Duration, measure func(ctx context.Context, to io.Writer) error) {
	progress = os.Stderr
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	err := Print(os.Stdout, "machine", machine())
	if err == nil {
		err = measure(ctx, os.Stdout)
	}
	cancel()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// machine is what all figures of a program hold for.
func machine() Figure {
	f := Figure{"cores": runtime.NumCPU(), "go": runtime.Version(), "os": runtime.GOOS + "/" + runtime.GOARCH,
		"date": time.Now().UTC().Format(time.DateOnly)}
	if load, err := os.ReadFile("/proc/loadavg"); err == nil { // Linux
		f["load"], _, _ = strings.Cut(string(load), " ")
	}
	return f
}

// Progress says how far the program is.
func Progress(format string, args ...any) {
	_, _ = fmt.Fprintf(progress, "bench: "+format+"\n", args...)
}

// Figure is what one line says.
type Figure map[string]any

// Print writes a figure as a JSON line.
func Print(to io.Writer, name string, f Figure) error {
	f["figure"] = name
	line, err := json.Marshal(f)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(to, string(line))
	return err
}

// Alternate measures each side once in each round, in turns, and returns the median of each. The first round warms up,
// and is not counted.
func Alternate(rounds int, sides ...func() (float64, error)) ([]float64, error) {
	measured := make([][]float64, len(sides))
	for round := range rounds + 1 {
		values := make([]float64, len(sides))
		for i, side := range sides {
			value, err := side()
			if err != nil {
				return nil, err
			}
			values[i] = Hundredths(value)
			if round > 0 {
				measured[i] = append(measured[i], value)
			}
		}
		Progress("round %d of %d: %v", round, rounds, values)
	}
	medians := make([]float64, len(sides))
	for i, values := range measured {
		medians[i] = Median(values)
	}
	return medians, nil
}

// Median returns the middle one of the values, which stay in their order.
func Median(values []float64) float64 {
	return slices.Sorted(slices.Values(values))[len(values)/2]
}

// Whole rounds to a number without decimals.
func Whole(v float64) int { return int(math.Round(v)) }

// Hundredths rounds to two decimals.
func Hundredths(v float64) float64 { return math.Round(v*100) / 100 }

// Message returns the message that all figures are given for: 5 metadata keys and 1 KiB, which is JSON.
func Message() *message.Message {
	payload := make([]byte, 1024)
	for i := range payload {
		payload[i] = 'x'
	}
	payload[0], payload[len(payload)-1] = '"', '"'
	msg := message.NewMessage(watermill.NewUUID(), payload)
	for _, key := range []string{"a", "bb", "ccc", "dddd", "eeeee"} {
		msg.Metadata.Set(key, "value")
	}
	return msg
}

// Measures runs a program, and returns an error unless it measures to the end and its lines are Complete.
func Measures(ctx context.Context, run func(context.Context, io.Writer) error, want ...string) error {
	var out strings.Builder
	if err := run(ctx, &out); err != nil {
		return err
	}
	return Complete(out.String(), want...)
}

// Complete returns an error unless out has a line for each of want, in order, with the figures that it names: above
// zero, of any value if the name ends with a question mark, or of a value after an equals sign.
func Complete(out string, want ...string) error {
	lines := slices.Collect(strings.Lines(out))
	if len(lines) != len(want) {
		return fmt.Errorf("%d lines, want %q:\n%s", len(lines), want, out)
	}
	for i, line := range lines {
		figure := map[string]any{}
		if err := json.Unmarshal([]byte(line), &figure); err != nil {
			return fmt.Errorf("%s: %w", line, err)
		}
		for _, name := range strings.Fields(want[i]) {
			name, exact, fixed := strings.Cut(name, "=")
			name, any := strings.CutSuffix(name, "?")
			value, there := figure[name].(float64)
			if fixed && fmt.Sprint(figure[name]) != exact || !fixed && (!there || value <= 0 && !any) {
				return fmt.Errorf("%s: %s", name, line)
			}
		}
	}
	return nil
}

// ProcessorTime is what the process has used of all processors.
func ProcessorTime() time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		return 0
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
