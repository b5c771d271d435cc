package main

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"go.uber.org/goleak"

	"github.com/watermill-spillway/spillway/internal/services"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Promises P1, P3, P4 and P7, end to end on each broker, in brief: whatever is killed, cut or stopped, each message
// takes effect once, or is a dead letter where its kind demands it. "make chaos" is the same at length.
func TestCampaign(t *testing.T) {
	seed := 1 + rand.Uint64N(1<<32)
	if given := os.Getenv("SPILLWAY_CHAOS_SEED"); given != "" {
		var err error
		if seed, err = strconv.ParseUint(given, 10, 64); err != nil {
			t.Fatalf("SPILLWAY_CHAOS_SEED is %q: give a number", given)
		}
	}
	program := filepath.Join(t.TempDir(), "chaos")
	// Without the race detector: watermill-amqp has a race of its own when it dials again.
	if out, err := exec.Command("go", "build", "-race=false", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("build the program: %v\n%s", err, out)
	}
	address := map[string]func(testing.TB){
		"kafka":    func(t testing.TB) { services.Kafka(t) },
		"rabbitmq": func(t testing.TB) { services.AMQP(t) },
		"postgres": func(t testing.TB) { services.Postgres(t) },
		"mariadb":  func(t testing.TB) { services.MySQL(t) },
	}
	// Those of a pair have no server in common.
	for kind, pair := range map[string][]string{"brokers": {"kafka", "rabbitmq"}, "tables": {"postgres", "mariadb"}} {
		t.Run(kind, func(t *testing.T) {
			for _, name := range pair {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					for _, server := range serversOf[name] {
						address[server](t)
					}
					campaignOf(t, program, name, seed)
				})
			}
		})
	}
}

func campaignOf(t *testing.T, program, name string, seed uint64) {
	var said bytes.Buffer
	// The guard of outages is another's part of the chain, so each broker is tried with it and without it in turn.
	outages := (seed+uint64(len(name)))%2 == 0
	run := exec.CommandContext(t.Context(), program, "-broker", name, "-messages", "300", "-duration", "5m", "-seed", strconv.FormatUint(seed, 10), "-outages="+strconv.FormatBool(outages))
	run.Stderr = &said
	line, err := run.Output()
	t.Logf("%s", bytes.TrimSpace(line))
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit) && exit.ExitCode() == exitNotOurs && os.Getenv("CI") != "true":
		t.Skipf("NOT TESTED: %s", &said)
	case err != nil:
		t.Errorf("seed %d: %v\n%s", seed, err, &said)
	}
}
