package conformance

import (
	"encoding/json"
	"os"
	"slices"
	"sync"
	"testing"
)

// feature is a row of the matrix.
type feature struct {
	id    string
	title string
	run   func(*bench)
}

// Run tests a pub/sub, with a subtest for each feature. For faults it starts processes in which the calling test runs again
// and Run is a consumer.
func Run(t *testing.T, target Target) {
	if child := os.Getenv(ChildVariable); child != "" {
		if child == childName(t, target) {
			consume(t, target)
		}
		return
	}
	target.validate(t)
	target.command = childCommand(t, target)
	results := map[string]string{}
	for _, f := range features() { // first, while the suites on the same broker are at these rows too
		if _, pinned := target.Pins[f.id]; !pinned && restarts[f.id] {
			results[f.id] = f.on(t, target)
		}
	}
	var together sync.WaitGroup
	var after, last []func() // what runs together comes after the others, and last its records, in order
	for _, f := range features() {
		reason, pinned := target.Pins[f.id]
		result, done := results[f.id]
		if pinned {
			result, done = "pinned", true
		}
		if alone, fault := faults[f.id]; fault && !alone {
			if !done {
				after = append(after, func() { result = f.on(t, target) })
			}
			last = append(last, func() { record(t, target, f, result, reason) })
			continue
		}
		if !done {
			result = f.on(t, target)
		}
		record(t, target, f, result, reason)
	}
	for _, f := range after {
		together.Go(f)
	}
	together.Wait()
	for _, f := range last {
		f()
	}
}

// validate fails the test before any feature runs, if the features would fail for reasons other than the pub/sub.
func (target *Target) validate(t *testing.T) {
	if target.Name == "" || target.Publisher == nil || target.Subscriber == nil {
		t.Fatalf("Target.Name (%q), Target.Publisher and Target.Subscriber are required: set them", target.Name)
	}
	for id := range target.Pins {
		if !slices.ContainsFunc(features(), func(f feature) bool { return f.id == id }) {
			t.Fatalf("Target.Pins names %q, which is no feature: use an id that the documentation of package conformance lists", id)
		}
	}
}

// on runs the feature and returns its result, or "" if -run left it out.
func (f feature) on(t *testing.T, target Target) (result string) {
	if lock := target.Beside; lock != nil && restarts[f.id] {
		lock.Lock()
		defer lock.Unlock()
	} else if lock != nil {
		lock.RLock()
		defer lock.RUnlock()
	}
	passed := t.Run(f.id, func(t *testing.T) {
		result = "pass"
		defer func() {
			if t.Failed() {
				t.Logf("%s: %s", f.id, f.title)
			}
			if t.Skipped() {
				result = "skipped"
			}
		}()
		if _, fault := faults[f.id]; fault {
			f.run(newBareBench(t, target))
			return
		}
		f.run(newBench(t, target))
	})
	if !passed {
		return "fail"
	}
	return result
}

// Line is one cell of the matrix, as Run writes it to the file that OutVariable names.
type Line struct {
	PubSub  string `json:"pubsub"`
	Feature string `json:"feature"`
	Title   string `json:"title"`
	Result  string `json:"result"` // pass, fail, skipped or pinned
	Reason  string `json:"reason,omitempty"`
}

// OutVariable names the environment variable that holds the file to which Run appends results.
const OutVariable = "SPILLWAY_CONFORMANCE_OUT"

var recording sync.Mutex

func record(t *testing.T, target Target, f feature, result, reason string) {
	if reason != "" {
		t.Logf("%s %s: pinned: %s", f.id, f.title, reason)
	}
	path := os.Getenv(OutVariable)
	if path == "" || result == "" {
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
