package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/watermill-spillway/spillway/internal/testing/chart"
	"github.com/watermill-spillway/spillway/observe/alerts"
	"github.com/watermill-spillway/spillway/observe/dashboard"
)

// query is one of the dashboard or of the rules.
type query struct {
	where, text, legend string
}

// board returns the queries of the dashboard, as it asks them with all variables on "All".
func board() ([]query, error) {
	var b struct {
		Panels []struct {
			Type, Title string
			Targets     []struct{ RefID, Expr, LegendFormat string }
		}
	}
	if err := json.Unmarshal(dashboard.Grafana(), &b); err != nil {
		return nil, err
	}
	variables := strings.NewReplacer("$__rate_interval", "5s", "$job", ".*", "$topic", ".*", "$handler", ".*")
	var found []query
	for _, p := range b.Panels {
		for _, t := range p.Targets {
			found = append(found, query{p.Title + " " + t.RefID, variables.Replace(t.Expr), t.LegendFormat})
		}
	}
	return found, nil
}

var rule = regexp.MustCompile(`(?m)^( *)- (?:alert|record): (\S+)\n *expr:(.*)\n((?: {10,}.*\n)*)`)

// ruled returns the queries of the rules.
func ruled() (found []query) {
	for _, match := range rule.FindAllStringSubmatch(Hurry(string(alerts.Rules())), -1) {
		text := strings.TrimSpace(match[3])
		if text == "|-" {
			text = match[4]
		}
		found = append(found, query{where: match[2], text: text})
	}
	return found
}

// silent are the queries for which the demo has no data, as what they count does not happen in it: a process that ends,
// versions, leases, letters of topics that are not allowed, and dead-letter topics.
var silent = []string{
	"Messages that ended the process A", "Messages that did not B", "Messages that did not C",
	"Messages that did not D",
	"Letters that were not taken B", "Letters that were not taken C", "Letters that were not taken D",
}

// Answers says what Prometheus answered to all queries.
type Answers struct {
	Queries, Errors int
	Empty           []string // that should have data
}

// check runs all queries over the time since start. If out is not nil, it prints the answers.
func check(ctx context.Context, s *server, since time.Time, out io.Writer) (a Answers, err error) {
	all, err := board()
	if err != nil {
		return a, err
	}
	for _, q := range append(all, ruled()...) {
		a.Queries++
		answer, err := s.last(ctx, q.text, since)
		switch {
		case ctx.Err() != nil:
			return a, context.Cause(ctx)
		case err != nil:
			a.Errors++
			fmt.Fprintf(out, "%s: %v: %s\n", q.where, err, q.text)
		case len(answer) == 0 && !slices.Contains(silent, q.where):
			a.Empty = append(a.Empty, q.where)
		}
		draw(out, q, answer)
	}
	return a, nil
}

// draw prints a line for each series.
func draw(out io.Writer, q query, answer []series) {
	fmt.Fprintf(out, "\n%s\n", q.where)
	for _, line := range answer[:min(len(answer), 12)] {
		values, most := []float64{}, 0.
		for _, pair := range line.Values {
			text, _ := pair[1].(string)
			v, err := strconv.ParseFloat(text, 64)
			if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
				v = 0
			}
			values, most = append(values, v), max(most, v)
		}
		if most == 0 {
			most = 1
		}
		fmt.Fprintf(out, "  %-60s %8.4g %s\n", legend(q.legend, line.Metric), values[len(values)-1],
			chart.History(thin(values), most))
	}
	if len(answer) == 0 {
		fmt.Fprintln(out, "  no data")
	}
	if len(answer) > 12 {
		fmt.Fprintf(out, "  and %d more\n", len(answer)-12)
	}
}

// thin takes the largest of several values, so that the line fits.
func thin(values []float64) (few []float64) {
	each := (len(values) + chart.Columns - 1) / chart.Columns
	for part := range slices.Chunk(values, max(1, each)) {
		few = append(few, slices.Max(part))
	}
	return few
}

var label = regexp.MustCompile(`\{\{(\w+)\}\}`)

// legend fills the legend of a panel, as Grafana does.
func legend(format string, labels map[string]string) string {
	if format == "" || format == "__auto" {
		return fmt.Sprint(labels)
	}
	return label.ReplaceAllStringFunc(format, func(text string) string { return labels[text[2:len(text)-2]] })
}
