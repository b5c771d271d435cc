package dashboard_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/watermill-spillway/spillway/internal/testing/services"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/seriestest"
	"github.com/watermill-spillway/spillway/observe/dashboard"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type source struct{ Type, UID string }

type panel struct {
	ID          int
	Type, Title string
	Datasource  *source
	GridPos     struct{ H, W, X, Y int }
	FieldConfig struct{ Defaults struct{ Unit string } }
	Targets     []struct {
		RefID, Expr, LegendFormat string
		Datasource                *source
	}
	Panels []panel
}

type board struct {
	UID, Title    string
	SchemaVersion int
	Panels        []panel
	Templating    struct {
		List []struct {
			Name, Type, Definition string
			Query                  any
		}
	}
	Annotations struct {
		List []struct {
			Expr       string
			Datasource *source
		}
	}
}

func load(t *testing.T) (b board) {
	t.Helper()
	testkit.NoError(t, json.Unmarshal(dashboard.Grafana(), &b))
	return b
}

// units are those of Grafana that the panels may have.
var units = []string{"none", "short", "s", "ops", "percentunit"}

// Feature O3: Grafana imports the dashboard as it is: ids are unique, no panel covers another, and the data source is a
// variable.
func TestStructure(t *testing.T) {
	b := load(t)
	testkit.Require(t, b.UID == "spillway" && b.Title != "" && b.SchemaVersion >= 38 && len(b.Panels) != 0,
		"uid %q, title %q, schema %d, %d panels", b.UID, b.Title, b.SchemaVersion, len(b.Panels))
	ids, titles, taken, rows := map[int]bool{}, map[string]bool{}, map[string]string{}, []string{}
	row := ""
	for _, p := range b.Panels {
		testkit.Check(t, !ids[p.ID] && p.ID != 0, "%s: its id %d is 0, or another's", p.Title, p.ID)
		ids[p.ID] = true
		g := p.GridPos
		testkit.Check(t, g.W >= 1 && g.H >= 1 && g.X >= 0 && g.X+g.W <= 24,
			"%s: it is not within the 24 columns: %+v", p.Title, g)
		for x := g.X; x < g.X+g.W; x++ {
			for y := g.Y; y < g.Y+g.H; y++ {
				place := fmt.Sprint(x, " ", y)
				testkit.Require(t, taken[place] == "", "%s covers %s", p.Title, taken[place])
				taken[place] = p.Title
			}
		}
		if p.Type == "row" {
			row = p.Title
			rows = append(rows, row)
			continue
		}
		testkit.Check(t, !titles[row+p.Title], "%s: two panels of the row %s have this title", p.Title, row)
		titles[row+p.Title] = true
		testkit.Check(t, slices.Contains(units, p.FieldConfig.Defaults.Unit),
			"%s: the unit %q is none of %v", p.Title, p.FieldConfig.Defaults.Unit, units)
		variable(t, p.Title, p.Datasource)
		testkit.Check(t, len(p.Targets) != 0, "%s has no query", p.Title)
		refs := map[string]bool{}
		for _, target := range p.Targets {
			variable(t, p.Title, target.Datasource)
			testkit.Check(t, !refs[target.RefID] && target.RefID != "" && target.Expr != "",
				"%s: two queries are %q, or one is empty", p.Title, target.RefID)
			refs[target.RefID] = true
		}
	}
	testkit.Equal(t, "rows", strings.Join(rows, ", "),
		"Overview, Causes, Stages, Order by key, Receiver, Breaker, Redrive and campaigns, Store and sight")
	first := b.Templating.List[0]
	testkit.Check(t, first.Name == "datasource" && first.Type == "datasource" && first.Query == "prometheus",
		"the first variable is no Prometheus data source: %+v", first)
}

func variable(t *testing.T, where string, s *source) {
	t.Helper()
	testkit.Check(t, s != nil && s.Type == "prometheus" && s.UID == "${datasource}",
		"%s: its data source is %+v, want the variable", where, s)
}

// queries returns all queries by where they stand, with the variables replaced as Grafana does for "All".
func queries(t *testing.T) map[string]string {
	t.Helper()
	b, found := load(t), map[string]string{}
	add := func(where, query string) {
		found[where] = strings.NewReplacer("$__rate_interval", "1m", "$job", ".*", "$topic", ".*", "$handler", ".*").Replace(query)
		testkit.Check(t, !strings.Contains(found[where], "$"),
			"%s has a variable that does not exist: %s", where, query)
	}
	for _, p := range b.Panels {
		for _, target := range p.Targets {
			add(p.Title+" "+target.RefID, target.Expr)
		}
	}
	for i, a := range b.Annotations.List {
		variable(t, "annotation", a.Datasource)
		add(fmt.Sprint("annotation ", i), a.Expr)
	}
	return found
}

// Feature O3: every series that the dashboard asks for is registered, with every label that it uses. So are those of
// the variables.
func TestSeriesExist(t *testing.T) {
	series := seriestest.Load(t)
	rules := testkit.Must(os.ReadFile("../alerts/spillway.rules.yml"))
	recorded := series.Recorded(string(rules))
	b := load(t)
	for _, p := range b.Panels {
		for _, target := range p.Targets {
			labels := series.Check(t, p.Title, target.Expr, recorded)
			for _, match := range regexp.MustCompile(`\{\{(\w+)\}\}`).FindAllStringSubmatch(target.LegendFormat, -1) {
				testkit.Check(t, slices.Contains(labels, match[1]),
					"%s: the legend %q has a label that no series has", p.Title, target.LegendFormat)
			}
		}
	}
	for _, v := range b.Templating.List[1:] {
		match := regexp.MustCompile(`^label_values\((.*), (\w+)\)$`).FindStringSubmatch(v.Definition)
		if match == nil {
			t.Errorf("the variable %s has the query %q", v.Name, v.Definition)
		} else if labels := series.Check(t, "the variable "+v.Name, match[1], nil); !slices.Contains(labels, match[2]) {
			t.Errorf("the variable %s asks for the label %s, which its series does not have", v.Name, match[2])
		}
	}
}

// Prometheus can read each query.
func TestSyntax(t *testing.T) {
	promtool := services.Promtool(t)
	var file strings.Builder
	file.WriteString("groups:\n- name: dashboard\n  rules:\n")
	for where, query := range queries(t) {
		fmt.Fprintf(&file, "  - record: a:b\n    labels: {where: %q}\n    expr: %q\n", where, query)
	}
	path := filepath.Join(t.TempDir(), "queries.yml")
	testkit.NoError(t, os.WriteFile(path, []byte(file.String()), 0o600))
	out, err := exec.Command(promtool, "check", "rules", path).CombinedOutput()
	testkit.Check(t, err == nil, "%v\n%s", err, out)
}
