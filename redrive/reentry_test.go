package redrive_test

import (
	"context"
	"testing"

	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive"
)

// entryRows are letters that may enter elsewhere than at their origin.
var entryRows = map[string]struct {
	origin  string
	entry   func(poison.Letter) string
	want    string
	refused bool
}{
	"at a stage":            {"orders", func(poison.Letter) string { return "orders.billing.retry.5s" }, "orders.billing.retry.5s", false},
	"at the origin":         {"orders", func(poison.Letter) string { return "" }, "orders", false},
	"nobody says":           {"orders", nil, "orders", false},
	"panics":                {"orders", func(poison.Letter) string { panic("boom") }, "orders", false},
	"forged origin":         {"secrets", func(poison.Letter) string { return "orders.billing.retry.5s" }, "unknown.parked", true},
	"no origin":             {"", func(poison.Letter) string { return "orders.billing.retry.5s" }, "unknown.parked", true},
	"forged origin, panics": {"secrets", func(poison.Letter) string { panic("boom") }, "unknown.parked", true},
}

// Features V1, V8: the allow-list decides by a letter's origin, and ReentryTopic where it then enters; one that panics,
// or has nothing to say, leaves it to enter at its origin.
func TestReentryTopic(t *testing.T) {
	for name, row := range entryRows {
		live, park := &outbox{}, &outbox{}
		h := testkit.Must(redrive.NewHandler(live, redrive.HandlerConfig{Rules: redrive.Rules{Allow: []string{"orders"}, ReentryTopic: row.entry}, Park: park}))
		testkit.NoError(t, h.Handle(letter("1", "{}", from(row.origin))))
		taken := live.All()
		if row.refused {
			taken = park.All()
		}
		if len(live.All())+len(park.All()) != 1 || len(taken) != 1 || taken[0].Topic != row.want {
			t.Errorf("%s: live %v, parked %v, want %s", name, live.All(), park.All(), row.want)
		}
		if !row.refused && (taken[0].Msg.UUID != "1" || taken[0].Msg.Metadata[poison.KeyOriginalTopic] != row.origin || poison.Inside().IsLetter(taken[0].Msg)) {
			t.Errorf("%s: enters as %v", name, taken[0].Msg.Metadata)
		}
	}
}

// Features V1, V8: a drain of the store obeys the same rules.
func TestReentryTopic_drain(t *testing.T) {
	for name, row := range entryRows {
		store, live := newStore(t), &outbox{}
		publish(t, store, "orders.dlq", letter("1", "{}", from(row.origin)))
		testkit.Must(redrive.Drain(context.Background(), store, live, redrive.DrainConfig{Rules: redrive.Rules{Allow: []string{"orders"}, ReentryTopic: row.entry}}))
		if taken := live.All(); row.refused != (len(taken) == 0) || !row.refused && (len(taken) != 1 || taken[0].Topic != row.want) {
			t.Errorf("%s: %v, want %s", name, taken, row.want)
		}
	}
}
