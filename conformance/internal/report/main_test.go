package main

import (
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/watermill-spillway/spillway/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const results = `{"pubsub":"a","feature":"P1","title":"kept","result":"pass"}
{"pubsub":"b","feature":"P1","title":"kept","result":"fail"}
{"pubsub":"a","feature":"D8","title":"read","rests":["K14"],"result":"pinned","sentence":"K14 (unreadable): marked","reason":"no bytes"}
{"pubsub":"a","feature":"H1","title":"hostile","rests":["K9","K15"],"result":"pass"}
{"pubsub":"a","feature":"H1","case":"long id","title":"hostile","rests":["K9","K15"],"result":"pinned","sentence":"K15 (id): kept","reason":"36 bytes"}
{"pubsub":"a","feature":"H1","case":"odd id","title":"hostile","rests":["K9","K15"],"result":"pinned","sentence":"K15 (id): kept","reason":"36 bytes"}
`

// A failed cell fails the matrix; pins stand in it with their reason, and what was not run says so.
func TestMatrix(t *testing.T) {
	lines := testkit.Must(read(strings.NewReader(results)))
	var out strings.Builder
	if err := write(&out, lines); err == nil || !strings.Contains(err.Error(), "1 cells failed") {
		t.Errorf("got %v", err)
	}
	for _, want := range []string{
		"P1            kept     pass      fail", "D8  K14       read     pinned 1  not run", "H1  K9 K15    hostile  pass -2   not run",
		"1: K14: no bytes", "2: K15: 36 bytes", "K14 (unreadable): marked", "K15 (id): kept",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in\n%s", want, out.String())
		}
	}
	testkit.NoError(t, write(&out, lines[:1]))
	for _, bad := range []string{"", "no JSON\n"} {
		if _, err := read(strings.NewReader(bad)); err == nil {
			t.Errorf("%q passes for results", bad)
		}
	}
}
