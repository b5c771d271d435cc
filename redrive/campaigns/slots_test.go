package campaigns_test

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/internal/fixture"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

const twelve = 12

// ofTwelve starts a campaign for each of twelve topics, with some letters each, and returns them with their ids.
func ofTwelve(t *testing.T, store *letters.Store, rate float64) (all *campaigns.Campaigns, ids []string) {
	t.Helper()
	var c campaigns.Config
	for i := range twelve {
		c.Allow = append(c.Allow, fmt.Sprintf("topic-%d", i))
	}
	all = open(t, store, c)
	for i := range twelve {
		for k := range 3 {
			fixture.Publish(t, store, "some.dlq", fixture.Letter(fmt.Sprintf("%d-%d", i, k), "{}", fixture.From(c.Allow[i])))
		}
		r := request
		r.Filter, r.Rate = letters.Filter{Topics: c.Allow[i : i+1]}, rate
		ids = append(ids, start(t, all, r).ID)
	}
	return all, ids
}

// awaitTopics waits until messages of so many topics were published.
func awaitTopics(t *testing.T, out *fixture.Outbox, n int) {
	t.Helper()
	published := map[string]int{}
	testkit.Eventually(t, "campaigns have published", func() bool {
		clear(published)
		for _, p := range out.All() {
			published[p.Topic]++
		}
		return len(published) == n
	}, func() string { return fmt.Sprint(published) })
}

// Feature V7, promise P4: a campaign without a letter due keeps no other from its turn.
func TestCampaignsBehindSlowOnes(t *testing.T) {
	all, _ := ofTwelve(t, fixture.SQLite.NewStore(t), 0.02) // a letter at once, and the next one in 50 s
	out := &fixture.Outbox{}
	run(t, all, out, quick)
	awaitTopics(t, out, twelve)
}

// Feature V7, promise P4: campaigns with letters due take turns, also if publishers do not return, and the record says
// what one waits for. A campaign whose turn ended goes on at its next one, and no letter is published twice.
func TestCampaignsTakeTurns(t *testing.T) {
	all, ids := ofTwelve(t, fixture.SQLite.NewStore(t), 0)
	let := make(chan struct{})
	goOn := sync.OnceFunc(func() { close(let) })
	defer goOn()
	out := &fixture.Outbox{Before: func(topic string, _ *message.Message) error {
		if n, err := strconv.Atoi(strings.TrimPrefix(topic, "topic-")); err == nil && n < 8 {
			<-let
		}
		return nil
	}}
	run(t, all, out, quick)
	awaitTopics(t, out, twelve-8)
	for _, id := range ids[8:] {
		reach(t, all, id, campaigns.Finished)
	}
	goOn()
	waited := 0
	for _, id := range ids {
		reach(t, all, id, campaigns.Finished)
		events := testkit.Must(all.Inside().History(t.Context(), id, 0))
		for _, e := range events {
			if e.Kind == inside.CampaignWaits && strings.Contains(e.Reason, "they take turns") {
				waited++
			}
		}
	}
	testkit.Check(t, waited != 0 && waited <= twelve, "%d campaigns say that they waited", waited)
	wantIDs(t, out, 3*twelve)
}

// Feature V7: the turns that the database gives out are a rate's, whichever of two workers takes them: the letters of a
// campaign never come faster. How close they come on this machine is logged, not judged.
func TestRate(t *testing.T) {
	fixture.OnEach(t, func(t *testing.T, d fixture.Database) {
		const n, rate = 200, 100
		store := d.NewStore(t)
		all := open(t, store, config)
		fixture.Publish(t, store, "orders.dlq", fixture.Several(n)...)
		r := request
		r.Rate, r.Concurrency = rate, 8
		out := &fixture.Outbox{}
		run(t, all, out, quick)
		run(t, all, out, quick)
		reach(t, all, start(t, all, r).ID, campaigns.Finished)
		wantIDs(t, out, n)
		sent := out.All()
		first, last := sent[0].At, sent[0].At
		for _, p := range sent {
			if p.At.Before(first) {
				first = p.At
			}
			if p.At.After(last) {
				last = p.At
			}
		}
		took := last.Sub(first)
		want := time.Duration(n-1) * time.Second / rate
		t.Logf("%d letters at %d/s took %s: %s", n, rate, took, fmt.Sprintf("%+.2f %%", 100*(want.Seconds()/took.Seconds()-1)))
		if took < want-750*time.Millisecond { // the letters in hand of a worker that stood still come late, and the next ones in time
			t.Errorf("%d letters at %d/s took %s", n, rate, took)
		}
	})
}
