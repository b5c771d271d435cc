package main

import (
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const results = `{"pubsub":"a","feature":"P1","title":"kept","result":"pass"}
{"pubsub":"b","feature":"P1","title":"kept","result":"fail"}
{"pubsub":"a","feature":"D8","title":"read","result":"pinned","reason":"no bytes"}
`

// A failed cell fails the matrix; pins stand in it with their reason, and what was not run says so.
func TestMatrix(t *testing.T) {
	lines, err := read(strings.NewReader(results))
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := write(&out, lines); err == nil || !strings.Contains(err.Error(), "1 cells failed") {
		t.Errorf("got %v", err)
	}
	for _, want := range []string{"P1  kept  pass      fail", "D8  read  pinned 1  not run", "pinned 1: no bytes"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in\n%s", want, out.String())
		}
	}
	if err := write(&out, lines[:1]); err != nil {
		t.Error(err)
	}
	for _, bad := range []string{"", "no JSON\n"} {
		if _, err := read(strings.NewReader(bad)); err == nil {
			t.Errorf("%q passes for results", bad)
		}
	}
}
