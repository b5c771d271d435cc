package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Promises P1 and P7, end to end on real payloads: whatever the seed of the faults, nothing is lost, nothing happens
// twice, and every kind of event of the story happens.
func TestDemo(t *testing.T) {
	for _, seed := range []uint64{1, 2, 3} {
		result := testkit.Must(run("", seed))
		if err := result.Check(60); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
	}
}

// Bad input: a file that is missing or of another shape is an error that says which line.
func TestDemoRefusesInput(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "bad.jsonl")
	testkit.NoError(t, os.WriteFile(bad, []byte("{\"event\":\"push\",\"payload\":{}}\n{\"event\":\n"), 0o600))
	for path, want := range map[string]string{bad: "line 2", bad + ".missing": "no such file"} {
		if _, err := run(path, 1); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", path, err)
		}
	}
}
