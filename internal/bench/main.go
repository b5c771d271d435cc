// Command figures measures what the README promises and prints one JSON object a line: Spillway beside Watermill in the
// same run, in alternating rounds, medians of them. `make bench` runs it.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"testing"
)

const rounds = 9

func main() {
	testing.Init()
	if err := flag.Set("test.benchtime", "200ms"); err != nil {
		fmt.Fprintln(os.Stderr, "figures:", err)
		os.Exit(1)
	}
	happyPath()
	letterEncode()
}

func happyPath() {
	ours, theirs := measure(happySpillway), measure(happyWatermill)
	for range rounds {
		ours.round()
		theirs.round()
	}
	fmt.Println(line("happy_path", map[string]any{
		"spillway_ns": round2(ours.ns()), "watermill_ns": round2(theirs.ns()), "ratio": round2(theirs.ns() / ours.ns()),
		"spillway_allocs": ours.allocs, "watermill_allocs": theirs.allocs,
	}))
}

func letterEncode() {
	whole, encode := measure(placeLetter), measure(encodeLetter)
	for range rounds {
		whole.round()
		encode.round()
	}
	fmt.Println(line("letter_encode", map[string]any{
		"ns": round2(whole.ns()), "encode_alone_ns": round2(encode.ns()), "bytes_added": bytesAdded(), "allocs": whole.allocs,
	}))
}

// measurement collects rounds of one benchmark.
type measurement struct {
	bench  func(*testing.B)
	rounds []float64
	allocs int64
}

func measure(bench func(*testing.B)) *measurement { return &measurement{bench: bench} }

func (m *measurement) round() {
	result := testing.Benchmark(m.bench)
	m.rounds = append(m.rounds, float64(result.T.Nanoseconds())/float64(result.N))
	m.allocs = max(m.allocs, result.AllocsPerOp())
}

func (m *measurement) ns() float64 {
	slices.Sort(m.rounds)
	return m.rounds[len(m.rounds)/2]
}

func round2(f float64) float64 { return float64(int(f*100+0.5)) / 100 }

func line(figure string, values map[string]any) string {
	values["figure"] = figure
	text, err := json.Marshal(values)
	if err != nil {
		return err.Error()
	}
	return string(text)
}
