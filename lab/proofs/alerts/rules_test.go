// Package alerts_test reads the alerts: each has a runbook, tests, and series that exist.
package alerts_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"go.yaml.in/yaml/v3"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/seriestest"
	"github.com/watermill-spillway/spillway/observe/alerts"
)

const runbooks = "https://github.com/watermill-spillway/spillway/blob/main/docs/alerts.md#"

// Feature O3: each alert has what a person needs at night, and its runbook exists.
func TestEachAlert(t *testing.T) {
	page := read("../../../docs/alerts.md")
	_, found := load(t)
	for name, r := range found {
		for what, value := range map[string]string{
			"for": r.For, "keep_firing_for": r.KeepFiringFor, "summary": r.Annotations["summary"], "description": r.Annotations["description"],
		} {
			testkit.Check(t, value != "", "%s has no %s", name, what)
		}
		if severity := r.Labels["severity"]; !slices.Contains([]string{"critical", "warning", "info"}, severity) {
			t.Errorf("%s has the severity %q: give critical, warning or info", name, severity)
		}
		if got, want := r.Annotations["runbook_url"], runbooks+strings.ToLower(name); got != want {
			t.Errorf("%s has the runbook %s, want %s", name, got, want)
		}
		_, section, ok := strings.Cut(page, "\n## "+name+"\n")
		section, _, _ = strings.Cut(section, "\n## ")
		testkit.Check(t, ok && len(strings.Fields(section)) >= 30, "docs/alerts.md has no runbook for %s", name)
		if !strings.HasPrefix(section, "\n**"+r.Labels["severity"]+"**: ") {
			t.Errorf("the runbook of %s in docs/alerts.md does not begin with its severity, %s", name, r.Labels["severity"])
		}
		for text, pattern := range map[string]*regexp.Regexp{"topic": regexp.MustCompile(`\btopic\b`), "handler": regexp.MustCompile(`\bhandler\b`), "cause": regexp.MustCompile(`\bcause\b`)} {
			if slices.Contains(texts(r), text) && !pattern.MatchString(r.Annotations["summary"]+r.Annotations["description"]) {
				t.Errorf("%s does not name its %s", name, text)
			}
		}
	}
	for heading := range strings.Lines(page) {
		if alert, ok := strings.CutPrefix(strings.TrimSpace(heading), "## Spillway"); ok {
			if _, ok := found["Spillway"+alert]; !ok {
				t.Errorf("docs/alerts.md has a runbook for %q, which is no alert", alert)
			}
		}
	}
}

// texts returns the labels that are in the texts of a rule.
func texts(r rule) (labels []string) {
	for _, match := range regexp.MustCompile(`\$labels\.(\w+)`).FindAllStringSubmatch(r.Annotations["summary"]+r.Annotations["description"], -1) {
		labels = append(labels, match[1])
	}
	return labels
}

// Each limit is used, and each alert that compares with a number compares with a limit.
func TestLimits(t *testing.T) {
	records, found := load(t)
	all := ""
	for _, r := range records {
		all += r.Expr
	}
	compared := regexp.MustCompile(`[<>]=?\s*([\w(.:]+)`)
	for name, r := range found {
		all += r.Expr
		for _, match := range compared.FindAllStringSubmatch(r.Expr, -1) {
			if with := match[1]; with != "0" && !strings.HasPrefix(with, "scalar(spillway:limit:") {
				t.Errorf("%s compares with %s: record a limit", name, with)
			}
		}
	}
	for name, r := range records {
		testkit.Check(t, !strings.HasPrefix(name,
			"spillway:limit:") || strings.HasPrefix(r.Expr, "vector("), "%s is not a constant: %s", name, r.Expr)
		testkit.Check(t, regexp.MustCompile(regexp.QuoteMeta(name)+`\b`).MatchString(all),
			"%s is used by no rule", name)
	}
}

// Each alert has a test that it fires, and one that it does not, in a file of its name.
func TestEachAlertIsTested(t *testing.T) {
	_, found := load(t)
	for name := range found {
		var tests struct {
			Order []string `yaml:"group_eval_order"`
			Tests []struct {
				AlertRuleTest []struct {
					AlertName string `yaml:"alertname"`
					ExpAlerts []any  `yaml:"exp_alerts"`
				} `yaml:"alert_rule_test"`
			}
		}
		testkit.NoError(t, yaml.Unmarshal([]byte(read(folder+"testdata/"+name+".yml")), &tests))
		if len(tests.Order) != 5 || tests.Order[0] != "spillway-limits" || tests.Order[1] != "spillway-counts" {
			t.Errorf(folder+"testdata/%s.yml has the group_eval_order %v: name all groups, or promtool evaluates them in a random order", name, tests.Order)
		}
		fires, silent := 0, 0
		for _, test := range tests.Tests {
			for _, one := range test.AlertRuleTest {
				switch {
				case one.AlertName != name:
				case len(one.ExpAlerts) > 0:
					fires++
				default:
					silent++
				}
			}
		}
		if fires == 0 || silent == 0 {
			t.Errorf(folder+"testdata/%s.yml: %d times the alert fires, %d times it is silent: want both", name, fires, silent)
		}
	}
}

// Feature O3: the rules ask for series and labels that there are, and so do their texts.
func TestSeriesExist(t *testing.T) {
	series := seriestest.Load(t)
	recorded := series.Recorded(string(alerts.Rules()))
	records, found := load(t)
	for name, r := range found {
		records[name] = r
	}
	for name, r := range records {
		labels := series.Check(t, name, r.Expr, recorded)
		for _, label := range texts(r) {
			testkit.Check(t, slices.Contains(labels, label),
				"%s has a text with the label %s, which no series of it has", name, label)
		}
	}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// folder has the rules and their tests.
const folder = "../../../observe/alerts/"

// file is what a file of rules has.
type file struct {
	Groups []struct {
		Name  string
		Rules []rule
	}
}

type rule struct {
	Record, Alert, Expr string
	For                 string
	KeepFiringFor       string `yaml:"keep_firing_for"`
	Labels, Annotations map[string]string
}

// load returns the recorded series and the alerts, by their names.
func load(t *testing.T) (records, found map[string]rule) {
	t.Helper()
	var parsed file
	testkit.NoError(t, yaml.Unmarshal(alerts.Rules(), &parsed))
	records, found = map[string]rule{}, map[string]rule{}
	for _, group := range parsed.Groups {
		for _, r := range group.Rules {
			into, name := records, r.Record
			if r.Alert != "" {
				into, name = found, r.Alert
			}
			if _, twice := into[name]; twice {
				t.Errorf("%s is there twice", name)
			}
			into[name] = r
		}
	}
	return records, found
}

func read(path string) string { return string(testkit.Must(os.ReadFile(path))) }
