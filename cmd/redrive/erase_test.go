package main

import (
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/delay"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/poison"
)

const erased = "ann.smith@example.com"

// Features D14 and V10: a person's data are erased from the command line, after a dry run and a question that names the
// numbers. The value is not on record, and what was erased is not exported.
func TestEraseCommand(t *testing.T) {
	s := newShop(t, append(incident(), letter("ann", `{"email":"`+erased+`"}`, func(l *poison.Letter) {
		l.Original.Metadata.Set("customer", erased)
		l.Failure.Description = "no mailbox " + erased
	}))...)
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
	if strings.Contains(all, erased) || !strings.Contains(all, "erased") || !strings.Contains(all, "request 17") || !strings.Contains(all, "sha256:") {
		t.Errorf("the commands say\n%s", all)
	}
	if got := s.pipe("export", "--status", "all"); strings.Count(got.out, "\n") != 5 || strings.Contains(got.out, "no mailbox") {
		t.Errorf("exported\n%s", got.out)
	}
	s.steps([]step{{3, "", []string{"redrive", "--id", "ann", "--dry-run"}}})
}
