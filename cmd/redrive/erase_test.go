package main

import (
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/delay"
	"github.com/watermill-spillway/spillway/internal/testkit/databases"
	"github.com/watermill-spillway/spillway/poison"
)

const erased = "ann.smith@example.com"

// Features D14 and V10: a person's data are erased from the command line, after a dry run and a question that names the
// numbers. The value is not on record, and what was erased is not exported.
func TestEraseCommand(t *testing.T) {
	databases.Each(t, func(t *testing.T, d databases.Database, address string) {
		s := shopOn(t, d, address, append(incident(), letter("ann", `{"email":"`+erased+`"}`, func(l *poison.Letter) {
			l.Original.Metadata.Set("customer", erased)
			l.Failure.Description = "no mailbox " + erased
		}))...)
		delayed, err := delay.NewStore(t.Context(), s.db, "shop")
		if err != nil {
			t.Fatal(err)
		}
		waits := message.NewMessage("waits", nil)
		waits.Metadata.Set("customer", erased)
		if err := delayed.Inside().Put(t.Context(), "orders", waits, time.Hour); err != nil {
			t.Fatal(err)
		}
		whom := []string{"erase", "--metadata", "customer=" + erased, "--reason", "request 17"}
		for _, step := range []struct {
			code int
			says string
			args []string
		}{
			{2, "nothing is chosen", []string{"erase", "--reason", "r"}},
			{2, "both given", []string{"erase", "--reason", "r", "--id", "1", "--metadata", "a=b"}},
			{2, "key=value", []string{"erase", "--reason", "r", "--metadata", "a="}},
			{2, "--reason is empty", []string{"erase", "--id", "1"}},
			{2, "--receiver-keys", []string{"erase", "--id", "1", "--reason", "r", "--receiver-keys", "hash"}},
			{2, "Act.Reason has a value", []string{"erase", "--metadata", "customer=" + erased, "--reason", "for " + erased, "--yes"}},
			{2, "Act.Reason has a value", []string{"erase", "--metadata", "customer=" + erased, "--reason", "for " + erased, "--dry-run"}},
			{0, "would erase 1 letter, 1 message that wait, 0 keys", append(whom, "--dry-run")},
			{4, "erase 1 letter, 1 message that wait, 0 keys, 0 texts of campaigns of shop for good?", whom},
			{0, "erased 1 letter, 1 message that wait", append(whom, "--yes")},
			{0, `"letters":0`, append(whom, "--yes", "--json")},
		} {
			got := s.pipe(step.args...)
			if got.code != step.code || !strings.Contains(got.out+got.err, step.says) {
				t.Errorf("%v: exit %d, want %d: %s %s", step.args, got.code, step.code, got.out, got.err)
			}
			if got.code == 2 && (got.out != "" || strings.Contains(got.err, "what was done")) {
				t.Errorf("%v is refused, and says %s %s", step.args, got.out, got.err)
			}
		}
		all := s.pipe("list", "--status", "all").out + s.pipe("audit").out + s.pipe("causes", "--status", "all").out + s.pipe("show", "ann").out
		if strings.Contains(all, erased) || !strings.Contains(all, "erased") || !strings.Contains(all, "request 17") || !strings.Contains(all, "sha256:") {
			t.Errorf("the commands say\n%s", all)
		}
		if got := s.pipe("export", "--status", "all"); strings.Count(got.out, "\n") != 5 || strings.Contains(got.out, "no mailbox") {
			t.Errorf("exported\n%s", got.out)
		}
		if got := s.pipe("redrive", "--id", "ann", "--dry-run"); got.code != 3 {
			t.Errorf("an erased letter would be redriven: exit %d, %s", got.code, got.out)
		}
		if got := s.pipe("purge", "--status", "erased", "--older-than", "0s", "--reason", "r", "--yes"); got.code != 0 {
			t.Errorf("exit %d: %s", got.code, got.err)
		}
	})
}

// Features D14 and V9: rules of retention run once from the command line, the first that matches decides, and a dry run
// says how many letters each deletes.
func TestPurge_rules(t *testing.T) {
	s := newShop(t, incident()...)
	s.pipe("discard", "--all", "--reason", "a test", "--yes")
	rules := []string{"--rule", "class=transient keep", "--rule", "status=discarded reason=no_such_customer older-than=1d", "--rule", "status=discarded older-than=99999h"}
	for _, step := range []struct {
		code int
		says string
		args []string
	}{
		{0, "would delete 3 letters: status=discarded reason=no_such_customer older-than=1d", append(rules, "--dry-run")},
		{0, `"purged":3,"dry_run":true`, append(rules, "--dry-run", "--json")},
		{2, "--reason is empty", rules},
		{2, "both given", append(rules, "--status", "discarded", "--reason", "r")},
		{2, "--status is empty", []string{"--dry-run"}},
		{0, "would delete 5 letters", []string{"--status", "discarded", "--older-than", "0s", "--dry-run"}},
		{0, `"chosen":5,"purged":0,"left":0,"dry_run":true`, []string{"--status", "discarded", "--older-than", "0s", "--dry-run", "--json"}},
		{0, "would delete 5 letters: status=discarded older-than=0s", []string{"--rule", "status=discarded older-than=0s", "--dry-run"}},
		{0, "would delete 5 letters: status=discarded older-than=0d", []string{"--rule", "status=discarded older-than=0d", "--dry-run"}},
		{2, "older-than=-1s", []string{"--rule", "status=discarded older-than=-1s", "--dry-run"}},
		{2, "unknown status", []string{"--rule", "status=old older-than=1d", "--dry-run"}},
		{2, "class=worse", []string{"--rule", "class=worse older-than=1d", "--dry-run"}},
		{2, "older-than=x", []string{"--rule", "status=discarded older-than=x", "--dry-run"}},
		{2, "the words are", []string{"--rule", "age=1d", "--dry-run"}},
		{2, "want a word", []string{"--rule", "status", "--dry-run"}},
		{2, "--rule is empty", []string{"--rule", " ", "--dry-run"}},
		{2, "OlderThan", []string{"--rule", "status=discarded", "--dry-run"}},
		{4, "delete 3 letters of shop for good?", append(rules, "--reason", "policy")},
		{0, "deleted 3 letters: status=discarded reason=no_such_customer", append(rules, "--reason", "policy", "--yes")},
		{3, "no letter is past", append(rules, "--reason", "policy", "--yes")},
	} {
		if got := s.pipe(append([]string{"purge"}, step.args...)...); got.code != step.code || !strings.Contains(got.out+got.err, step.says) {
			t.Errorf("%q: exit %d, want %d: %s %s", step.args, got.code, step.code, got.out, got.err)
		}
	}
	if n := strings.Count(s.pipe("list", "--status", "all").out, "\n"); n != 2 {
		t.Errorf("%d letters are left", n)
	}
	if got := s.pipe("audit", "--id", "id-0"); !strings.Contains(got.out, "policy") {
		t.Errorf("the record: %s", got.out)
	}
}

// Feature V10: the help of a command that there is not is an error that names the commands.
func TestUnknownHelp(t *testing.T) {
	s := newShop(t)
	for _, args := range [][]string{{"nosuch", "--help"}, {"nosuch"}, {"--json", "nosuch", "-h"}} {
		got := s.pipe(args...)
		if got.code != 2 || !strings.Contains(got.err, `unknown command "nosuch"`) || len(args) == 2 && !strings.Contains(got.err, "purge, ") {
			t.Errorf("%q: exit %d: %s %s", args, got.code, got.out, got.err)
		}
	}
	for _, args := range [][]string{{"--help"}, {"erase", "--help"}, {"help", "erase"}, {"help", "json"}} {
		if got := s.pipe(args...); got.code != 0 || !strings.Contains(got.out, "redrive") {
			t.Errorf("%q: exit %d: %s", args, got.code, got.err)
		}
	}
}
