package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"syscall"
	"time"

	"github.com/watermill-spillway/spillway/observe/alerts"
)

// Result is what the last line says.
type Result struct {
	Demo       string   `json:"demo"`
	Alerts     int      `json:"alerts"`
	Fired      int      `json:"fired"`
	Cleared    int      `json:"cleared"`
	Queries    int      `json:"queries"`
	Errors     int      `json:"query_errors"`
	Empty      []string `json:"queries_without_data"`
	Seconds    float64  `json:"seconds"`
	Incomplete string   `json:"incomplete,omitempty"`
}

// Good reports whether all that was to be shown was.
func (r Result) Good() bool {
	return r.Incomplete == "" && r.Alerts > 0 && r.Fired == r.Alerts && r.Cleared == r.Alerts && r.Queries > 0 &&
		r.Errors == 0 && len(r.Empty) == 0
}

func main() {
	limit := flag.Duration("limit", 3*time.Minute, "how long the demo may take")
	panels := flag.Bool("panels", false, "print the data of every panel and rule at the end, as text")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	result, err := run(ctx, *limit, *panels)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "observe:", err)
		result.Incomplete = err.Error()
	}
	line, err := json.Marshal(result)
	if err != nil {
		fmt.Fprintln(os.Stderr, "observe:", err)
	}
	fmt.Println(string(line))
	if !result.Good() {
		os.Exit(1)
	}
}

// run tells the story, and leaves nothing of it behind.
func run(ctx context.Context, limit time.Duration, panels bool) (result Result, err error) {
	result = Result{Demo: "observe", Empty: []string{}}
	folder, err := os.MkdirTemp("", "spillway-observe-")
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	s, err := openShop(ctx, folder)
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	fmt.Fprintln(os.Stderr, "starting Prometheus; it is installed if it is missing")
	server, err := startPrometheus(folder, []target{{s.one.name, s.one.page.address}, {s.two.name, s.two.page.address}})
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, server.close()) }()
	fmt.Fprintf(os.Stderr, "Prometheus is at %s, with the rules in %s; each time in them is a %dth, and no limit is "+
		"longer than %d s\n\n", server.address, filepath.Join(folder, "spillway.rules.yml"), Factor, Longest)

	ctx, cancel := context.WithTimeoutCause(ctx, limit,
		fmt.Errorf("the demo has had its %s: give a longer -limit", limit))
	defer cancel()
	w := newWatch(os.Stderr, server)
	err = beside(ctx, func(ctx context.Context) error { return (&history{shop: s, watch: w}).tell(ctx) }, s.traffic,
		w.run)
	result.Seconds = float64(time.Since(w.start).Round(100*time.Millisecond).Milliseconds()) / 1000
	for _, name := range names() {
		result.Alerts++
		if w.fired[name] {
			result.Fired++
		}
		if w.cleared[name] {
			result.Cleared++
		}
	}
	if err != nil {
		return result, err
	}
	out := io.Discard
	if panels {
		out = os.Stderr
	}
	answers, err := check(ctx, server, w.start, out)
	result.Queries, result.Errors, result.Empty = answers.Queries, answers.Errors, append(result.Empty,
		answers.Empty...)
	return result, err
}

// names returns the names of the alerts.
func names() (found []string) {
	for _, match := range regexp.MustCompile(`(?m)^ *- alert: (\w+)$`).FindAllStringSubmatch(string(alerts.Rules()),
		-1) {
		found = append(found, match[1])
	}
	return found
}
