package main

import (
	"context"
	"flag"
	"os"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/watermill-spillway/spillway/internal/testing/services"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

var update = flag.Bool("update", false, "write docs/incidents.md")

// The example starts itself as its service, and here that is the test.
func TestMain(m *testing.M) {
	if slices.Contains(os.Args, "-serve") {
		main()
		return
	}
	goleak.VerifyTestMain(m)
}

// Features V6, V7, V9 and V10, promises P1 and P7, end to end: an incident through the built command. Nothing is lost,
// nothing happens twice, everything is on record, and docs/incidents.md shows what the command prints.
func TestIncident(t *testing.T) {
	services.Postgres(t)
	r, steps, err := run(context.Background(), plan{messages: 1000, failing: 120, rate: 50, seed: 1, broker: "sql"}, t.Output())
	testkit.NoError(t, err)
	testkit.NoError(t, r.check())
	const path = "../../docs/incidents.md"
	page := testkit.Must(os.ReadFile(path))
	want := testkit.Must(onPage(string(page), steps))
	if *update {
		testkit.NoError(t, os.WriteFile(path, []byte(want), 0o644))
		return
	}
	shown, now := strings.Split(string(page), "\n"), strings.Split(want, "\n")
	for i := range min(len(shown), len(now)) {
		if shown[i] != now[i] {
			t.Fatalf("%s:%d shows\n%s\nand the command prints\n%s\ngo test ./examples/incident -update writes the page", path, i+1, shown[i], now[i])
		}
	}
	if len(shown) != len(now) {
		t.Errorf("%s has %d lines, and %d are printed: go test ./examples/incident -update writes the page", path, len(shown), len(now))
	}
}

// A practice ends with its input. Its line of input deployed the fix, and every letter is still there.
func TestPractice(t *testing.T) {
	services.Postgres(t)
	r, _, err := run(context.Background(), plan{messages: 100, failing: 12, seed: 1, broker: "sql", practice: strings.NewReader("\n")}, t.Output())
	testkit.NoError(t, err)
	testkit.Check(t, r.Lost <= 0 && r.Applied == 88 && r.Remaining == 12 && r.DuplicateEffects <= 0, "%+v", r)
}

// What cannot be done is an error that says what to do.
func TestIncidentRefuses(t *testing.T) {
	services.Postgres(t)
	_, _, err := run(context.Background(), plan{messages: 10, failing: 5, broker: "pigeons"}, t.Output())
	testkit.Check(t, err != nil && strings.Contains(err.Error(), "give kafka or sql"), "%v", err)
}
