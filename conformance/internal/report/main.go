// Command report prints what the conformance suite wrote, features by pub/subs, and fails when a cell does.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/watermill-spillway/spillway/conformance"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: matrix FILE, the one that "+conformance.OutVariable+" named")
		os.Exit(2)
	}
	file, err := os.Open(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, "matrix:", err)
		os.Exit(1)
	}
	lines, err := read(file)
	if err == nil {
		err = write(os.Stdout, lines)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "matrix:", err)
		os.Exit(1)
	}
}

func read(from io.Reader) (lines []conformance.Line, err error) {
	scanner := bufio.NewScanner(from)
	for scanner.Scan() {
		var line conformance.Line
		if err := json.Unmarshal(scanner.Bytes(), &line); err != nil {
			return nil, fmt.Errorf("line %d: %w", len(lines)+1, err)
		}
		lines = append(lines, line)
	}
	if len(lines) == 0 {
		return nil, fmt.Errorf("no results: %w", io.ErrUnexpectedEOF)
	}
	return lines, scanner.Err()
}

// write returns an error when a feature failed somewhere.
func write(to io.Writer, lines []conformance.Line) error {
	var pubsubs, features, reasons []string
	title, cells := map[string]string{}, map[[2]string]string{}
	failed := 0
	for _, line := range lines {
		if !slices.Contains(pubsubs, line.PubSub) {
			pubsubs = append(pubsubs, line.PubSub)
		}
		if !slices.Contains(features, line.Feature) {
			features = append(features, line.Feature)
		}
		title[line.Feature] = line.Title
		cell := line.Result
		if line.Result == "fail" {
			failed++
		}
		if line.Reason != "" {
			note := line.Reason
			if !slices.Contains(reasons, note) {
				reasons = append(reasons, note)
			}
			cell = fmt.Sprintf("pinned %d", slices.Index(reasons, note)+1)
		}
		cells[[2]string{line.Feature, line.PubSub}] = cell
	}
	table := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "\t\t%s\n", strings.Join(pubsubs, "\t"))
	for _, feature := range features {
		fmt.Fprintf(table, "%s\t%s", feature, title[feature])
		for _, pubsub := range pubsubs {
			cell := cells[[2]string{feature, pubsub}]
			if cell == "" {
				cell = "not run"
			}
			fmt.Fprintf(table, "\t%s", cell)
		}
		fmt.Fprintln(table)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for i, reason := range reasons {
		fmt.Fprintf(to, "pinned %d: %s\n", i+1, reason)
	}
	fmt.Fprintf(to, "%d features, %d pub/subs, %d failed\n", len(features), len(pubsubs), failed)
	if failed > 0 {
		return fmt.Errorf("%d cells failed", failed)
	}
	return nil
}
