package idempotency_test

import (
	"os"
	"sync"
	"testing"

	"github.com/watermill-spillway/spillway/internal/testing/results"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

// row is a case of the suite. Its id begins with the feature or promise that it shows.
type row struct {
	id, title string
	run       func(*cell)
}

// TestMatrix is the suite of the idempotent receiver, cases by databases. "make conformance-idempotency" prints it.
//
// Features I1, I2, I3, I4, I5, I6, I7, I9, promises P1, P2, P4, P7.
func TestMatrix(t *testing.T) {
	for _, rows := range [][]row{
		onceRows, togetherRows, outputRows, publishedRows, anyKeyRows, versionRows, reusedRows, redriveRows,
		downRows, endedRows, undoneRows, diskRows, leasedRows, expiryRows,
	} {
		for _, r := range rows {
			r.on(t, func(t *testing.T, d database) { r.run(newCell(t, d)) })
		}
	}
	for _, r := range append(keyRows, fileRows...) {
		r.alone(t, onSQLite, r.run)
	}
}

// on runs the case on every database at once, and records how it ended.
func (r row) on(t *testing.T, run func(*testing.T, database)) {
	t.Helper()
	var recording sync.Mutex
	cells := map[string]string{}
	t.Run(r.id, func(t *testing.T) {
		for _, d := range columns {
			t.Run(d.name, func(t *testing.T) {
				t.Parallel()
				t.Cleanup(func() { // the first to be registered runs last, after t.Fatal and a panic too
					result := "pass"
					switch {
					case t.Failed():
						result = "fail"
						t.Logf("%s: %s", r.id, r.title)
					case t.Skipped():
						result = "skipped"
					}
					recording.Lock()
					defer recording.Unlock()
					cells[d.name] = result
				})
				run(t, d)
			})
		}
	})
	for _, d := range columns { // in order, whichever ended first
		if result := cells[d.name]; result != "" { // else -run left it out
			testkit.NoError(t, results.Append(results.Line{PubSub: d.name, Feature: r.id, Title: r.title, Result: result}))
		}
	}
}

// appendLine writes a line at once, so that a killed process leaves a whole one or none.
func appendLine(t testing.TB, path string, line []byte) {
	t.Helper()
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = file.Write(append(line, '\n'))
	}
	if err == nil {
		err = file.Close()
	}
	testkit.NoError(t, err)
}
