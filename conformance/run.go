package conformance

import (
	"encoding/json"
	"os"
	"sync"
	"testing"
)

// feature is a row of the matrix.
type feature struct {
	id    string
	title string
	run   func(*bench)
}

// Run puts a pub/sub through the suite, a subtest for each feature.
func Run(t *testing.T, target Target) {
	known := map[string]bool{}
	for _, f := range features() {
		known[f.id] = true
		reason, pinned := target.Pins[f.id]
		if f.run == nil {
			reason, pinned = unbuilt[f.id], true
		}
		if pinned {
			record(t, target, f, "pinned", reason)
			continue
		}
		passed := t.Run(f.id, func(t *testing.T) { f.run(newBench(t, target)) })
		result := "fail"
		if passed {
			result = "pass"
		}
		record(t, target, f, result, "")
	}
	for id := range target.Pins {
		if !known[id] {
			t.Errorf("Target.Pins names %q, which is no feature of the suite", id)
		}
	}
}

// Line is one cell of the matrix, as it is written to the file that SPILLWAY_CONFORMANCE_OUT names.
type Line struct {
	PubSub  string `json:"pubsub"`
	Feature string `json:"feature"`
	Title   string `json:"title"`
	Result  string `json:"result"` // pass, fail or pinned
	Reason  string `json:"reason,omitempty"`
}

// OutVariable names the environment variable with the file that results are appended to.
const OutVariable = "SPILLWAY_CONFORMANCE_OUT"

var recording sync.Mutex

func record(t *testing.T, target Target, f feature, result, reason string) {
	if reason != "" {
		t.Logf("%s %s: pinned: %s", f.id, f.title, reason)
	}
	path := os.Getenv(OutVariable)
	if path == "" {
		return
	}
	recording.Lock()
	defer recording.Unlock()
	line, err := json.Marshal(Line{target.Name, f.id, f.title, result, reason})
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatalf("%s: %v", OutVariable, err)
	}
	defer func() {
		if err := file.Close(); err != nil {
			t.Fatal(err)
		}
	}()
	if _, err := file.Write(append(line, '\n')); err != nil {
		t.Fatal(err)
	}
}
