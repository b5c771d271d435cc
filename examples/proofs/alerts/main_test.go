// Package alerts_test reads the alerts: each has a runbook, tests, and series that exist.
package alerts_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"
	"go.yaml.in/yaml/v3"

	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/observe/alerts"
)

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

func read(t *testing.T, path string) string {
	t.Helper()
	content := testkit.Must(os.ReadFile(path))
	return string(content)
}
