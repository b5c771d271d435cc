package main

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/watermill-spillway/spillway/internal/services"
)

// Feature R13: consumers are killed and stopped, and per key all effects and outputs are in the order of the source.
// "make chaos-order" is the same at length.
func TestOrder(t *testing.T) {
	services.Kafka(t)
	program := filepath.Join(t.TempDir(), "order")
	if out, err := exec.Command("go", "build", "-race=false", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("build the program: %v\n%s", err, out)
	}
	for database, server := range map[string]func(testing.TB) string{"postgres": services.Postgres, "mariadb": services.MySQL} {
		t.Run(database, func(t *testing.T) {
			t.Parallel()
			server(t)
			var said bytes.Buffer
			run := exec.CommandContext(t.Context(), program, "-database", database, "-messages", "1500", "-kills", "3", "-cuts", "5", "-within", "5m")
			run.Stderr = &said
			line, err := run.Output()
			t.Logf("%s", bytes.TrimSpace(line))
			if err != nil {
				t.Errorf("%v\n%s", err, &said)
			}
		})
	}
}
