package seriestest

import (
	"fmt"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// counting counts the errors of a check.
type counting struct {
	testing.TB
	errors []string
}

func (c *counting) Helper() {}
func (c *counting) Errorf(format string, args ...any) {
	c.errors = append(c.errors, fmt.Sprintf(format, args...))
}

// A series or label that does not exist is found, wherever it stands in a query.
func TestCheck(t *testing.T) {
	series := parse("| `spillway_ok` |  | text |\n| `spillway_a_total` | topic, handler | text |\n| `spillway_b_seconds` | stage | text |\n")
	recorded := series.Recorded("- record: spillway:a:increase15m\n  expr: 1\n- record: spillway:limit:c\n")
	if len(recorded) != 2 || len(recorded["spillway:a:increase15m"]) != 2 || len(recorded["spillway:limit:c"]) != 0 {
		t.Fatalf("recorded are %v", recorded)
	}
	for query, wrong := range map[string]int{
		`spillway_ok == 1`: 0,
		`sum by (topic, job) (rate(spillway_a_total{handler=~"x{y}", instance!=""}[5m]))`:    0,
		`histogram_quantile(0.9, sum by (le, stage) (rate(spillway_b_seconds_bucket[5m])))`:  0,
		`spillway:a:increase15m{topic="x"} and on (job) up`:                                  0,
		`ALERTS{alertname="spillway_c"}`:                                                     0,
		`spillway_c`:                                                                         1,
		`spillway_a_total{stage="1"}`:                                                        1,
		`sum by (stage) (spillway_a_total)`:                                                  1,
		`max without (instance, pod, stage) (spillway_ok) > on (topic) spillway_a_total_sum`: 3,
		`spillway:limit:c{handler="x"}`:                                                      1,
	} {
		c := &counting{TB: t}
		series.Check(c, "it", query, recorded)
		if len(c.errors) != wrong {
			t.Errorf("%s: %d errors, want %d: %q", query, len(c.errors), wrong, c.errors)
		}
	}
	if found := Load(t); len(found) < 20 || len(found["spillway_attempts_total"]) != 3 {
		t.Errorf("docs/series.md is read as %v", found)
	}
}
