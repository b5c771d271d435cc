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

	"github.com/watermill-spillway/spillway/internal/testing/results"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: matrix FILE, the one that "+results.Variable+" named")
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

func read(from io.Reader) (lines []results.Line, err error) {
	scanner := bufio.NewScanner(from)
	for scanner.Scan() {
		var line results.Line
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

// table is what the lines say, by row and column.
type table struct {
	pubsubs, features, notes, sentences []string
	title, rests                        map[string]string
	cells                               map[[2]string]string
	failed                              int
}

func (m *table) add(line results.Line) {
	m.pubsubs, m.features = with(m.pubsubs, line.PubSub), with(m.features, line.Feature)
	at := [2]string{line.Feature, line.PubSub}
	note := ""
	if line.Reason != "" {
		m.sentences = with(m.sentences, line.Sentence)
		id, _, _ := strings.Cut(line.Sentence, " ")
		note = id + ": " + line.Reason
		m.notes = with(m.notes, note)
		note = fmt.Sprint(slices.Index(m.notes, note) + 1)
	}
	if line.Case != "" {
		if cell := m.cells[at]; !strings.Contains(cell+" ", " -"+note+" ") {
			m.cells[at] = cell + " -" + note
		}
		return
	}
	m.title[line.Feature], m.rests[line.Feature] = line.Title, strings.Join(line.Rests, " ")
	if line.Result == "fail" {
		m.failed++
	}
	m.cells[at] = strings.TrimSpace(line.Result + " " + note)
}

func with(all []string, one string) []string {
	if slices.Contains(all, one) {
		return all
	}
	return append(all, one)
}

// write returns an error when a feature failed somewhere.
func write(to io.Writer, lines []results.Line) error {
	m := table{title: map[string]string{}, rests: map[string]string{}, cells: map[[2]string]string{}}
	for _, line := range lines {
		m.add(line)
	}
	table := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "\trests on\t\t%s\n", strings.Join(m.pubsubs, "\t"))
	for _, feature := range m.features {
		fmt.Fprintf(table, "%s\t%s\t%s", feature, m.rests[feature], m.title[feature])
		for _, pubsub := range m.pubsubs {
			cell := m.cells[[2]string{feature, pubsub}]
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
	if len(m.notes) > 0 {
		fmt.Fprintln(to, "\"pinned 1\": the whole row does not run, for the reason 1. \"pass -1\": cases of the row do not "+
			"run, for the reason 1.")
	}
	for i, note := range m.notes {
		fmt.Fprintf(to, "%d: %s\n", i+1, note)
	}
	if len(m.sentences) > 0 {
		fmt.Fprintln(to, "Sentences of docs/pubsub.md that a pub/sub does not keep:")
	}
	for _, sentence := range m.sentences {
		fmt.Fprintln(to, sentence)
	}
	fmt.Fprintf(to, "%d features, %d pub/subs, %d failed\n", len(m.features), len(m.pubsubs), m.failed)
	if m.failed > 0 {
		return fmt.Errorf("%d cells failed", m.failed)
	}
	return nil
}
