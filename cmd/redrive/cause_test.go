package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Features V16, V10: a cause is taken, noted and snoozed from a terminal, over an API and on a database alike. What is
// said stands in the list of causes, and each change in the record.
func TestCause(t *testing.T) { bothWays(t, incident(), testCause) }

func testCause(t *testing.T, s *shop) {
	cause := testkit.Must(s.store.Groups(t.Context(), letters.Filter{Reasons: []string{"no_such_customer"}}))[0].Cause
	begin := cause[:12]
	testkit.Check(t, !strings.Contains(s.pipe("causes").out, "owner"), "something is said of a cause")
	s.steps([]step{
		{2, "--reason is empty", []string{"cause", begin, "--owner", "ann"}},
		{2, "Nothing changes", []string{"cause", begin, "--reason", "INC-7"}},
		{2, "--owner is empty", []string{"cause", begin, "--owner", "", "--reason", "INC-7"}},
		{2, "--link is", []string{"cause", begin, "--link", "javascript:alert(1)", "--reason", "INC-7"}},
		{2, "--note is", []string{"cause", begin, "--note", "two\nlines", "--reason", "INC-7"}},
		{2, "--snooze is", []string{"cause", begin, "--snooze", "yesterday", "--reason", "INC-7"}},
		{2, "within 90 days", []string{"cause", begin, "--snooze", "91d", "--reason", "INC-7"}},
		{2, "--remove is", []string{"cause", begin, "--remove", "snooze", "--reason", "INC-7"}},
		{2, "choose one", []string{"cause", begin, "--remove", "owner", "--owner", "ann", "--reason", "INC-7"}},
		{3, "no cause begins", []string{"cause", "0123456789abcdef", "--owner", "ann", "--reason", "INC-7"}},
		{0, "owner ann; the ledger is slow; https://tickets/7", []string{"cause", begin, "--owner", "ann", "--note", "the ledger is slow", "--link", "https://tickets/7", "--reason", "INC-7"}},
		{0, ": snoozed until ", []string{"cause", begin, "--snooze", "1d", "--reason", "known until tomorrow"}},
		{0, "owner ann; the ledger is slow; https://tickets/7", []string{"causes"}},
		{0, ": owner ann; the ledger is slow\n", []string{"cause", begin, "--unsnooze", "--remove", "link", "--reason", "it is repaired"}},
	})
	var listed operate.CauseData
	testkit.NoError(t, json.Unmarshal([]byte(s.pipe("causes", "--cause", cause, "--json").out), &listed))
	testkit.Check(t, listed.Owner == "ann" && listed.NotedBy == "ann" && listed.Link == "" && !listed.Snoozed && listed.Count == 3, "%+v", listed)
	record := s.pipe("audit", "--kind", "cause")
	record.wants(t, 0, "known until tomorrow", "cause "+cause+": no link; not snoozed")
	testkit.Equal(t, "entries", strings.Count(record.out, "cause "+cause), 3)
	s.pipe("redrive", "--cause", begin, "--reason", "INC-7", "--yes", "--detach")
	var id operate.CampaignData
	testkit.NoError(t, json.Unmarshal([]byte(s.pipe("campaigns", "--json").out), &id))
	s.pipe("campaigns", id.ID).wants(t, 0, cause[:8]+": owner ann; the ledger is slow")
}
