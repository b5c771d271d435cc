package main

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/order/parked"
	"github.com/watermill-spillway/spillway/internal/order/sequence"
	"github.com/watermill-spillway/spillway/internal/sqlstore/keytable"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// park parks a message of each key, and holds those whose key says so. Those without a key are late.
func (s *shop) park(keys ...string) {
	s.t.Helper()
	store := testkit.Must(sequence.NewStore(s.t.Context(), s.db, "shop"))
	for position, key := range keys {
		msg, wait := letter(fmt.Sprint("id-", position), "{}"), time.Hour
		if key == "" {
			wait = -time.Hour
		}
		testkit.NoError(s.t, store.Park(s.t.Context(), parked.Source{Group: "billing", Topic: "orders", Partition: 3}, &sequence.Row{
			Lane: parked.LaneOf([]byte(key)), RecordKey: []byte(key), Position: int64(position), Msg: msg,
			Held: strings.HasPrefix(key, "held"), Fingerprint: sequence.FingerprintOf(msg), SentAt: failedAt,
			Key: keytable.Key{Consumer: "shop/billing", ID: msg.UUID}}, wait))
	}
}

// Feature R13, conventions: what a person decides is on the row and on record, or is refused with what to do.
func TestSequencesDecide(t *testing.T) { bothWays(t, nil, testDecide) }

func testDecide(t *testing.T, s *shop) {
	decide := func(args ...string) result {
		return s.pipe(append([]string{"sequences", args[0], "--reason", "INC-7", "--yes"}, args[1:]...)...)
	}
	none := decide("release", "1")
	testkit.Check(t, none.code == 3, "without the table: %+v", none)
	s.park("held", "held", "held \x1b[31m\xff", "waits", "waits", "held")
	seqs := map[string]string{}
	for _, p := range testkit.Must(parked.List(t.Context(), s.db, "shop", 10)) {
		seqs[p.First] = fmt.Sprint(p.Seq)
	}
	held, hostile, waits := seqs["id-0"], seqs["id-2"], seqs["id-3"]
	show := s.terminal(120, "", "sequences", "show", held, "--color", "never").out
	obeyed(t, "show", show)
	result{out: show}.wants(t, 0, "held", "customer id-0 is unknown", "id-5", "orders")
	obeyed(t, "show", s.terminal(100, "", "sequences", "show", hostile, "--color", "never").out)
	testkit.Equal(t, "messages", strings.Count(s.pipe("sequences", "show", held, "--json").out, "\n"), 3)
	behind := fmt.Sprint(testkit.Must(strconv.Atoi(held)) + 1)
	for _, c := range []struct {
		code int
		says string
		args []string
	}{
		{2, "--reason", []string{"release", held, "--reason", ""}}, {2, "SEQ is \"a\"", []string{"skip", "a"}},
		{3, "no such message waits", []string{"skip", "999999"}}, {3, "not the first message of its key: " + held, []string{"skip", behind}},
		{3, "it is not held", []string{"release", waits}}, {2, "unknown flag", []string{"skip", held, "--all"}},
		{0, "skip 1 message", []string{"skip", held}}, {3, "decided already: skip, by ann", []string{"discard", held}},
		{5, "release 1 message", []string{"release", hostile, waits}}, {0, "discard 2 messages", []string{"discard", "--all", waits}},
	} {
		if s.api && c.code == 3 { // the server says it in its words
			c.says = "SEQ " + c.args[1]
		}
		decide(c.args...).wants(t, c.code, c.says)
	}
	_, rows, err := parked.Show(t.Context(), s.db, "shop", int64(testkit.Must(strconv.Atoi(held))), 3)
	testkit.Check(t, err == nil && !rows[0].Held && rows[0].Decided == "skip" && rows[0].By == "ann" &&
		rows[0].Why == "INC-7" && rows[1].Decided == "", "%+v: %v", rows, err)
	audit := s.pipe("audit", "--kind", "sequence", "--json").out
	testkit.Check(t, strings.Count(audit, "\n") == 3 &&
		strings.Contains(audit, `"id":"id-0","by":"ann","reason":"INC-7"`) &&
		strings.Contains(audit, `"detail":"skip of orders/3 at 0"`), "the record says %s", audit)
	list := s.terminal(120, "", "sequences", "--color", "never")
	obeyed(t, "sequences", list.out)
	list.wants(t, 0, "skip", "discard")
	s.pipe("sequences", "--limit", "1").wants(t, 0, "--limit 10 shows more")
}

// Features V10, V14: policies are listed, frozen and thawed, and a cause is released, with a reason and on record.
func TestPolicies(t *testing.T) { bothWays(t, incident(), testPolicies) }

func testPolicies(t *testing.T, s *shop) {
	policy := func(name, reason string) campaigns.Policy {
		return campaigns.Policy{Name: name, Filter: letters.Filter{Reasons: []string{reason}}, Window: time.Hour, PerDay: 4, Max: 100, Rate: 5, Canary: 10}
	}
	store := storeOn(t, s.db)
	testkit.Must(campaigns.New(t.Context(), store, campaigns.Config{Policies: []campaigns.Policy{policy("timeouts", "timeout"), policy("away", "unavailable")}}))
	testkit.Must(s.db.Exec(`INSERT INTO spillway_policies (service, name, cause, stopped, changed_at, changed_by, changed_why)
VALUES (?, 'timeouts', '9f3a12bc00', 1, 1, 'spillway', 'of the redrive 7, 5 of 5 letters failed again'), (?, 'timeouts', '9f3a7777', 1, 1, 'spillway', 'x')`,
		[]byte("shop"), []byte("shop")))
	list := func(args ...string) (all []inside.Policy) {
		for line := range strings.Lines(s.pipe(append([]string{"policies", "--json"}, args...)...).out) {
			var p inside.Policy
			testkit.NoError(t, json.Unmarshal([]byte(line), &p))
			all = append(all, p)
		}
		return all
	}
	all := list()
	testkit.Require(t, len(all) == 2 && all[1].Name == "timeouts" && len(all[1].Blocked) == 2 && strings.Contains(all[1].Rule, "reason timeout"), "%+v", all)
	out := s.terminal(160, "", "policies", "--color", "never").out
	testkit.Check(t, strings.Contains(out, "blocked") && strings.Contains(out, "5 of 5 letters failed again"), "%s", out)
	for _, row := range []struct {
		code int
		says string
		args []string
	}{
		{2, "reason", []string{"freeze"}},
		{0, "all policies of shop: frozen\n", []string{"freeze", "--reason", "INC-7"}},
		{0, "all policies of shop: frozen, as before\n", []string{"freeze", "--reason", "INC-7"}},
		{0, "the policy away of shop: frozen\n", []string{"freeze", "away", "--reason", "INC-7"}},
		{0, "all policies of shop: thawed\n", []string{"thaw", "--reason", "INC-7"}},
		{0, `"state":"thawed","changed":true`, []string{"thaw", "away", "--reason", "INC-7", "--json"}},
		{3, "here is no such policy", []string{"thaw", "other", "--reason", "INC-7"}},
		{2, "several", []string{"release", "timeouts", "9f3a", "--reason", "INC-7"}},
		{0, "the policy timeouts, cause 9f3a12bc of shop: released\n", []string{"release", "timeouts", "9f3a12", "--reason", "INC-7: repaired"}},
		{3, "here is no such policy", []string{"release", "timeouts", "9f3a12", "--reason", "INC-7"}},
	} {
		r := s.pipe(append([]string{"policies"}, row.args...)...)
		testkit.Check(t, r.code == row.code && strings.Contains(r.out+r.err, row.says), "%v: %+v", row.args, r)
	}
	testkit.Check(t, len(list()[1].Blocked) == 1, "%+v", list())
	record := s.pipe("audit", "--kind", "policy", "--json").out
	testkit.Check(t, strings.Count(record, "\n") == 5 && strings.Contains(record, "released: the policy timeouts, cause 9f3a12bc00"), "%s", record)
}
