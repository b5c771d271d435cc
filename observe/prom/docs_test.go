package prom_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

// register keeps the descriptions of what is registered.
type register struct {
	prometheus.Registerer
	descs []string
}

func (r *register) Register(c prometheus.Collector) error {
	described := make(chan *prometheus.Desc)
	go func() {
		defer close(described)
		c.Describe(described)
	}()
	for d := range described {
		r.descs = append(r.descs, d.String())
	}
	return nil
}

// docs/series.md has each series once, with its labels and its text.
func TestPage(t *testing.T) {
	r := &register{Registerer: prometheus.NewRegistry()}
	everything(t, r)
	rows := make([]string, len(r.descs))
	for i, d := range r.descs {
		_, labels, _ := strings.Cut(d, "variableLabels: {")
		labels, _, _ = strings.Cut(labels, "}")
		if strings.Contains(d, "source=") {
			labels = "source"
		}
		rows[i] = fmt.Sprintf("| `%s` | %s | %s |", quoted(d, "fqName: "), strings.ReplaceAll(labels, ",", ", "), quoted(d, "help: "))
	}
	slices.Sort(rows)
	rows = slices.Compact(rows)
	const path = "../../docs/series.md"
	page := testkit.Must(os.ReadFile(path))
	const head = "|---|---|---|\n"
	about, _, _ := strings.Cut(string(page), head)
	want := about + head + strings.Join(rows, "\n") + "\n"
	if os.Getenv("SPILLWAY_UPDATE") != "" {
		testkit.NoError(t, os.WriteFile(path, []byte(want), 0o644))
		return
	}
	testkit.Check(t, want == string(page),
		"%s has other series: SPILLWAY_UPDATE=1 go test -run TestPage ./observe/prom writes it:\n%s", path, want)
}

func quoted(text, before string) string {
	_, text, _ = strings.Cut(text, before+`"`)
	text, _, _ = strings.Cut(text, `"`)
	return text
}
