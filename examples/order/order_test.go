package main

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/watermill-spillway/spillway/internal/testing/services"
)

// Feature R13, as people are shown it: with Ordered no account lacks money, whatever fails.
func TestDemo(t *testing.T) {
	t.Parallel()
	services.Need(t, "kafka", "postgres")
	out, err := exec.CommandContext(t.Context(), program(t), "-demo", "-messages", "800", "-within", "5m").CombinedOutput()
	t.Logf("%s", out)
	if err != nil || !bytes.Contains(out, []byte(`"ordered":true,"messages":800,"applied":800,"out_of_order":0`)) {
		t.Error(err)
	}
}

// Feature R13: consumers are killed and stopped, and per key all effects and outputs are in the order of the source.
// "make chaos-order" is the same at length.
func TestOrder(t *testing.T) {
	t.Parallel()
	services.Need(t, "kafka", "rabbitmq")
	built := program(t)
	for _, database := range []string{"postgres", "mariadb"} {
		for broker, more := range map[string][]string{"kafka": {"-messages", "1500", "-grow", "-sparse", "0"},
			"rabbitmq": {"-messages", "600", "-stops=false"},
			"tables":   {"-messages", "600", "-stops=false", "-sparse", "0"}} {
			if broker == "rabbitmq" && database == "mariadb" {
				continue // what parks there is shown with the other brokers
			}
			t.Run(broker+"/"+database, func(t *testing.T) {
				t.Parallel()
				services.Need(t, database)
				var said bytes.Buffer
				if database == "mariadb" {
					more = append(slices.Clone(more), "-stops=false") // each takes as long as a session
				}
				arguments := append([]string{"-broker", broker, "-database", database, "-kills", "3", "-cuts", "5", "-within", "5m"}, more...)
				run := exec.CommandContext(t.Context(), built, arguments...)
				run.Stderr = &said
				line, err := run.Output()
				t.Logf("%s", bytes.TrimSpace(line))
				if err != nil {
					t.Errorf("%v\n%s", err, &said)
				}
			})
		}
	}
}

func program(t *testing.T) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "order")
	if out, err := exec.Command("go", "build", "-race=false", "-o", path, ".").CombinedOutput(); err != nil {
		t.Fatalf("build the program: %v\n%s", err, out)
	}
	return path
}
