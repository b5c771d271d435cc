package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/watermill-spillway/spillway/redrive/campaigns"
)

// Feature V9, V10, promise P6: letters that were given up are not redriven, and the command says so wherever they are
// asked for. Putting back is a command, and then they are redriven.
func TestDiscard(t *testing.T) {
	s := newShop(t, letter("id-0", "{}"), letter("id-1", "{}"), letter("id-2", "{}"), letter("id-3", "{}"))
	ok := func(out string, args ...string) {
		t.Helper()
		if got := s.pipe(args...); got.code != 0 || !strings.Contains(got.out, out) {
			t.Errorf("%q: exit %d, %s%s", args, got.code, got.out, got.err)
		}
	}
	refused := func(code int, says string, args ...string) {
		t.Helper()
		if got := s.pipe(args...); got.code != code || !strings.Contains(got.err+got.out, says) {
			t.Errorf("%q: exit %d, %s%s; want exit %d and %q", args, got.code, got.out, got.err, code, says)
		}
	}
	const back = "redrive restore"
	ok("discarded 2 letters", "discard", "1", "id-1", "--reason", "a test", "--yes")
	refused(3, "redrive show 1", "discard", "1", "--reason", "again", "--yes")
	refused(2, "give one", "discard", "3", "--topic", "orders", "--reason", "both", "--yes")
	refused(2, back, "redrive", "--status", "discarded", "--dry-run")
	refused(2, back, "redrive", "1", "--status", "discarded", "--reason", "x", "--yes")
	refused(2, "no message any more", "redrive", "--status", "erased", "--reason", "x", "--yes")
	ok("would leave out 2 letters: they are discarded; restore them first", "redrive", "--status", "all", "--dry-run")
	refused(3, "would leave out 1 letter: they are discarded; restore them first", "redrive", "1", "--status", "all", "--dry-run")
	refused(3, back+" 1", "redrive", "1", "--dry-run")
	refused(3, back, "redrive", "1", "2", "--reason", "x", "--yes")
	var plan campaigns.Plan
	if err := json.Unmarshal([]byte(s.pipe("redrive", "--all", "--status", "all", "--dry-run", "--json").out), &plan); err != nil || plan.Letters != 2 || len(plan.LeftOut) != 1 || plan.LeftOut[0].Letters != 2 {
		t.Errorf("%+v, %v", plan, err)
	}
	refused(2, "--reason is empty", "restore", "1")
	refused(2, "--all", "restore", "--reason", "a mistake")
	refused(3, "redrive show 3", "restore", "3", "--reason", "it waits", "--yes")
	ok("restored 1 letter", "restore", "1", "--reason", "a mistake", "--yes")
	ok(`{"chosen":1,"restored":1,"left":0}`, "restore", "--all", "--reason", "a mistake", "--yes", "--json")
	ok("a mistake", "audit", "1")
	ok("would redrive 4 letters", "redrive", "--all", "--dry-run")
	if got := s.pipe("causes", "--topic", "none"); strings.Contains(got.err, "--status all") || !strings.Contains(got.err, "--status") {
		t.Errorf("causes suggests a state that no redrive takes: %s", got.err)
	}
}
