package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/delay"
	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/poison"
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
func TestUnlease(t *testing.T) { bothWays(t, incident(), testUnlease) }

func testUnlease(t *testing.T, s *shop) {
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
	testkit.Require(t, err == nil && len(c.Letters) == 1, "%v %v", c, err)
	return c
}

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
	got := s.pipe("causes", "--topic", "none")
	testkit.Check(t, !strings.Contains(got.err, "--status all") && strings.Contains(got.err, "--status"),
		"causes suggests a state that no redrive takes: %s", got.err)
}

const erased = "ann.smith@example.com"

// Features D14 and V10: a person's data are erased from the command line, after a dry run and a question that names the
// numbers. The value is not on record, and what was erased is not exported.
func TestEraseCommand(t *testing.T) {
	bothWays(t, append(incident(), letter("ann", `{"email":"`+erased+`"}`, func(l *poison.Letter) {
		l.Original.Metadata.Set("customer", erased)
		l.Failure.Description = "no mailbox " + erased
	})), testErase)
}

func testErase(t *testing.T, s *shop) {
	delayed := testkit.Must(delay.NewStore(t.Context(), s.db, "shop"))
	waits := message.NewMessage("waits", nil)
	waits.Metadata.Set("customer", erased)
	testkit.NoError(t, delayed.Inside().Put(t.Context(), "orders", waits, time.Hour))
	whom := []string{"erase", "--metadata", "customer=" + erased, "--reason", "request 17"}
	s.steps([]step{
		{2, "nothing is chosen", []string{"erase", "--reason", "r"}},
		{2, "both given", []string{"erase", "--reason", "r", "--id", "1", "--metadata", "a=b"}},
		{2, "key=value", []string{"erase", "--reason", "r", "--metadata", "a="}},
		{2, "--reason is empty", []string{"erase", "--id", "1"}},
		{2, "--receiver-keys", []string{"erase", "--id", "1", "--reason", "r", "--receiver-keys", "hash"}},
		{2, "Act.Reason has a value", []string{"erase", "--metadata", "customer=" + erased, "--reason", "for " + erased, "--yes"}},
		{0, "would erase 1 letter, 1 message that wait, 0 keys", append(whom, "--dry-run")},
		{4, "erase 1 letter, 1 message that wait, 0 keys, 0 texts of campaigns of shop for good?", whom},
		{0, "erased 1 letter, 1 message that wait", append(whom, "--yes")},
		{0, `"letters":0`, append(whom, "--yes", "--json")},
	})
	all := s.pipe("list", "--status", "all").out + s.pipe("audit").out + s.pipe("causes", "--status", "all").out + s.pipe("show", "ann").out
	testkit.Check(t, !strings.Contains(all, erased) && strings.Contains(all, "erased") &&
		strings.Contains(all, "request 17") && strings.Contains(all, "sha256:"), "the commands say\n%s", all)
	got := s.pipe("export", "--status", "all")
	testkit.Check(t, s.api || strings.Count(got.out, "\n") == 5 && !strings.Contains(got.out, "no mailbox"),
		"exported\n%s", got.out)
	s.steps([]step{{3, "", []string{"redrive", "--id", "ann", "--dry-run"}}})
}
