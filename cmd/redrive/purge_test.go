package main

import (
	"fmt"
	"testing"
	"time"

	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Features D14, V9 and V10: purge deletes what is done with, by its flags or by rules, of which the first that matches
// decides. A dry run says how many letters each deletes, and the record stays.
func TestPurge(t *testing.T) {
	s := newShop(t, incident()...)
	s.pipe("discard", "--all", "--reason", "a test", "--yes")
	old := []string{"purge", "--status", "discarded", "--older-than", "0s"}
	rules := []string{"purge", "--rule", "class=transient keep", "--rule", "status=discarded reason=no_such_customer older-than=1d", "--rule", "status=discarded older-than=99999h"}
	rule := func(rule string) []string { return []string{"purge", "--dry-run", "--rule", rule} }
	s.steps([]step{
		{2, "--status", []string{"purge", "--older-than", "0s", "--reason", "retention"}},
		{2, "--older-than", []string{"purge", "--status", "discarded", "--reason", "retention"}},
		{2, "--reason", old},
		{2, "--reason is empty", rules},
		{2, "both given", append(rules, "--status", "discarded", "--reason", "r")},
		{0, "would delete 5 letters", append(old, "--dry-run")},
		{0, `"chosen":5,"purged":0,"left":0,"dry_run":true`, append(old, "--dry-run", "--json")},
		{0, "would delete 3 letters: status=discarded reason=no_such_customer older-than=1d", append(rules, "--dry-run")},
		{0, `"purged":3,"dry_run":true`, append(rules, "--dry-run", "--json")},
		{0, "would delete 5 letters: status=discarded older-than=0d", rule("status=discarded older-than=0d")},
		{2, "older-than=-1s", rule("status=discarded older-than=-1s")},
		{2, "unknown status", rule("status=old older-than=1d")},
		{2, "class=worse", rule("class=worse older-than=1d")},
		{2, "older-than=x", rule("status=discarded older-than=x")},
		{2, "the words are", rule("age=1d")},
		{2, "want a word", rule("status")},
		{2, "--rule is empty", rule(" ")},
		{4, "delete 3 letters of shop for good?", append(rules, "--reason", "policy")},
		{0, "deleted 3 letters: status=discarded reason=no_such_customer", append(rules, "--reason", "policy", "--yes")},
		{3, "no letter is past", append(rules, "--reason", "policy", "--yes")},
		{0, "purged", []string{"audit", "--id", "id-0"}},
		{4, "delete 2 letters of shop for good?", append(old, "--reason", "retention")},
		{0, "deleted 2 letters", append(old, "--reason", "retention", "--yes")},
	})
}

// Features V9 and V10: a lease whose holder is gone is seen, and broken on record.
func TestUnlease(t *testing.T) {
	s := newShop(t, incident()...)
	seq := fmt.Sprint(claim(t, s.store, letters.Filter{Handlers: []string{"shipping"}}).Letters[0].Seq)
	s.steps([]step{
		{0, "leased by", []string{"list", "--leased"}},
		{0, "", []string{"unlease", seq, "--reason", "scrapped", "--yes"}},
		{3, "", []string{"unlease", seq, "--reason", "scrapped", "--yes"}}, // it has no lease
		{0, "lease_broken\t" + seq, []string{"audit", seq}},
		{0, "scrapped", []string{"audit", seq}},
	})
}

// claim leases the first letter that f chooses for an hour.
func claim(t *testing.T, store *letters.Store, f letters.Filter) inside.Claim[letters.Letter] {
	t.Helper()
	seqs := testkit.Must(store.Inside().Free(t.Context(), f, 1))
	c, err := store.Inside().Claim(t.Context(), f, seqs, time.Hour)
	if err != nil || len(c.Letters) != 1 {
		t.Fatal(c, err)
	}
	return c
}
