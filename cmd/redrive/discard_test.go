package main

import (
	"strings"
	"testing"
)

// Feature V9, V10, promise P6: letters that were given up are not redriven, and the command says so wherever they are
// asked for. Putting back is a command, and then they are redriven.
func TestDiscard(t *testing.T) {
	s := newShop(t, letter("id-0", "{}"), letter("id-1", "{}"), letter("id-2", "{}"), letter("id-3", "{}"))
	const back = "redrive restore"
	s.steps([]step{
		{0, "discarded 2 letters", []string{"discard", "1", "id-1", "--reason", "a test", "--yes"}},
		{3, "redrive show 1", []string{"discard", "1", "--reason", "again", "--yes"}},
		{2, "give one", []string{"discard", "3", "--topic", "orders", "--reason", "both", "--yes"}},
		{2, back, []string{"redrive", "--status", "discarded", "--dry-run"}},
		{2, "no message any more", []string{"redrive", "--status", "erased", "--reason", "x", "--yes"}},
		{0, "would leave out 2 letters: they are discarded; restore them first", []string{"redrive", "--status", "all", "--dry-run"}},
		{3, "would leave out 1 letter: they are discarded; restore them first", []string{"redrive", "1", "--status", "all", "--dry-run"}},
		{3, back, []string{"redrive", "1", "2", "--reason", "x", "--yes"}},
		{2, "--reason is empty", []string{"restore", "1"}},
		{2, "--all", []string{"restore", "--reason", "a mistake"}},
		{3, "redrive show 3", []string{"restore", "3", "--reason", "it waits", "--yes"}},
		{0, "restored 1 letter", []string{"restore", "1", "--reason", "a mistake", "--yes"}},
		{0, `{"chosen":1,"restored":1,"left":0}`, []string{"restore", "--all", "--reason", "a mistake", "--yes", "--json"}},
		{0, "a mistake", []string{"audit", "1"}},
		{0, "would redrive 4 letters", []string{"redrive", "--all", "--dry-run"}},
	})
	if got := s.pipe("causes", "--topic", "none"); strings.Contains(got.err, "--status all") || !strings.Contains(got.err, "--status") {
		t.Errorf("causes suggests a state that no redrive takes: %s", got.err)
	}
}
