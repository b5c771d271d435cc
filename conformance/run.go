package conformance

import (
	"cmp"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/watermill-spillway/spillway/internal/testing/results"
)

// feature is a row of the results.
type feature struct {
	id    string
	title string
	rests string // the ids of the sentences of the contract that it rests on
	run   func(*bench)
}

// atATime is the number of rows with processes of their own that run at once. All of them starve a broker beside them.
const atATime = 12

// Run tests a pub/sub, with a subtest for each feature. For faults it starts processes in which the calling test runs
// again and Run is a consumer.
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
	for _, f := range target.rows() { // first, while the suites on the same broker are at these rows too
		if _, pinned := target.Pins[f.id]; !pinned && restarts[f.id] {
			results[f.id] = f.on(t, target)
		}
	}
	var together sync.WaitGroup
	var after, last []func() // what runs together comes after the others, and last its records, in order
	for _, f := range target.rows() {
		result, done := results[f.id]
		if _, pinned := target.Pins[f.id]; pinned {
			result, done = "pinned", true
		}
		if alone, fault := faults[f.id]; fault && !alone {
			if !done {
				after = append(after, func() { result = f.on(t, target) })
			}
			last = append(last, func() { record(t, target, f, result) })
			continue
		}
		if !done {
			result = f.on(t, target)
		}
		record(t, target, f, result)
	}
	room := make(chan struct{}, atATime)
	for _, f := range slices.Backward(after) { // outages, which wait longest, are the last of the list
		room <- struct{}{}
		together.Go(func() { defer func() { <-room }(); f() })
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
	for _, id := range target.Only {
		if !slices.ContainsFunc(features(), func(f feature) bool { return f.id == id }) {
			t.Fatalf("Target.Only names %q, which is no feature: use an id that the documentation of package conformance lists",
				id)
		}
	}
	for id, pin := range target.Pins {
		row, _, _ := strings.Cut(id, "/")
		if !slices.ContainsFunc(features(), func(f feature) bool { return f.id == row }) {
			t.Fatalf("Target.Pins names %q, which is no feature: use an id that the documentation of package conformance lists",
				id)
		}
		if _, _, err := readPin(pin); err != nil {
			t.Fatalf("Target.Pins[%q]: %v", id, err)
		}
	}
}

// rows are the features that the column has.
func (target *Target) rows() []feature {
	return slices.DeleteFunc(features(), func(f feature) bool {
		return target.Only != nil && !slices.Contains(target.Only, f.id)
	})
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
	target.row = newRow(f, target)
	passed := t.Run(f.id, func(t *testing.T) {
		result = "pass"
		defer func() {
			if !target.row.check(t) {
				result = "pinned"
			}
			if t.Failed() {
				t.Log(f.why())
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

// record writes the row's line, and one for each of its cases that the target pins.
func record(t *testing.T, target Target, f feature, result string) {
	lines := []results.Line{{PubSub: target.Name, Feature: f.id, Title: f.title, Rests: f.sentences(), Result: result}}
	pinCell(t, &lines[0], target.Pins[f.id])
	cases := newRow(f, target).pins
	for _, name := range slices.Sorted(maps.Keys(cases)) {
		line := lines[0]
		line.Case, line.Result = name, "pinned"
		pinCell(t, &line, cases[name])
		lines = append(lines, line)
	}
	if result == "" {
		return
	}
	if err := results.Append(lines...); err != nil {
		t.Fatalf("%s: %v", results.Variable, err)
	}
}

// pinCell notes the target's pin, if there is one, and logs it.
func pinCell(t *testing.T, l *results.Line, pin string) {
	if pin == "" {
		return
	}
	id, reason, err := readPin(pin)
	if err != nil {
		t.Fatal(err)
	}
	s, _ := said(id)
	l.Sentence, l.Reason = s.String(), reason
	t.Logf("%s %s is pinned: %s does not hold: %s", l.Feature, cmp.Or(l.Case, l.Title), id, reason)
}
