package campaigns_test

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/watermill-spillway/spillway/internal/hidden"
	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/testing/faultproxy"
	"github.com/watermill-spillway/spillway/internal/testing/fixture"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/databases"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
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
	out := working(t, all)
	awaitTopics(t, out, twelve)
}

// Feature V7: a campaign ends with its last letter, not with the turn of the one after it, which is due in 1,000 s.
func TestSlowCampaignEnds(t *testing.T) {
	fixture.OnEach(t, func(t *testing.T, d fixture.Database) {
		_, all := stored(t, d, config, fixture.Several(1)...)
		r := request
		r.Rate = 0.001
		working(t, all)
		testkit.Equal(t, "redriven", reach(t, all, start(t, all, r).ID, campaigns.Finished).Redriven, 1)
	})
}

// Feature V7, promise P4: a worker that stops in front of a letter's turn leaves the turn to the next worker. A campaign
// with a letter in 50 s would lose that time with each deploy.
func TestTurnIsReturned(t *testing.T) {
	fixture.OnEach(t, func(t *testing.T, d fixture.Database) {
		store, all := stored(t, d, config, fixture.Several(40)...)
		db := hidden.Of(store).DB()
		due := func(id string) (at int64, inHand bool) {
			testkit.Is(t, db.QueryRow(`SELECT next_due, (SELECT COUNT(*) FROM spillway_dead_letters WHERE token <> '') FROM spillway_campaigns WHERE id = '`+id+`'`).Scan(&at, &inHand), nil)
			return at, inHand
		}
		testkit.Eventually(t, "a worker stopped in time", func() bool { // it has 400 ms
			r := request
			r.Rate, r.Max = 0.02, 1
			id := start(t, all, r).ID
			at := time.Now().Add(400 * time.Millisecond).UnixMicro()
			testkit.Must(db.Exec(fmt.Sprintf(`UPDATE spillway_campaigns SET next_due = %d WHERE id = '%s'`, at, id)))
			out := &fixture.Outbox{}
			stop := run(t, all, out, quick)
			testkit.Eventually(t, "the letter is in hand", func() bool { _, inHand := due(id); return inHand })
			stop()
			after, _ := due(id)
			if len(out.All()) == 0 {
				testkit.Check(t, after >= at-1 && after <= at+1, "next due in %d µs more than before", after-at)
				return true
			}
			return false
		})
	})
}

// Feature V7, promise P4: a worker that has no answer to the commit of a claim asks for the claim. It would leave the
// letter alone until the lease ends.
func TestClaimWithoutAnswer(t *testing.T) {
	address := databases.Postgres.Create(t)
	through, proxy := databases.Postgres.Behind(t, address)
	through.SetMaxOpenConns(1)
	store := fixture.StoreOn(t, databases.Postgres.Open(t, address))
	fixture.Publish(t, store, "orders.dlq", fixture.Several(1)...)
	r := request
	r.Rate = 0.02
	start(t, open(t, store, config), r)
	var claims, lost atomic.Bool
	all := open(t, fixture.StoreOn(t, through), config)
	proxy.Watch(func(data []byte) faultproxy.Verdict {
		if bytes.Contains(data, []byte("SET next_due = $1")) {
			claims.Store(true)
		}
		return faultproxy.Pass
	}, func(data []byte) faultproxy.Verdict {
		if claims.Load() && bytes.Contains(data, []byte("COMMIT\x00")) && !lost.Swap(true) {
			return faultproxy.Close
		}
		return faultproxy.Pass
	})
	w := quick
	w.Lease = time.Hour
	out := &fixture.Outbox{}
	run(t, all, out, w)
	testkit.Eventually(t, "the letter is published", func() bool { return len(out.All()) == 1 })
	testkit.Check(t, lost.Load(), "no answer was lost")
}

// Feature V7, promise P4: campaigns take turns, also beside publishers that do not return, and none publishes twice.
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
		for _, e := range testkit.Must(hidden.Of(all).History(t.Context(), id, 0)) {
			if e.Kind == inside.CampaignWaits && strings.Contains(e.Reason, "they take turns") {
				waited++
			}
		}
	}
	testkit.Check(t, waited != 0 && waited <= twelve, "%d campaigns say that they waited", waited)
	wantIDs(t, out, 3*twelve)
}

// Feature V7: letters of two workers never come faster than the rate of their campaign.
func TestRate(t *testing.T) {
	fixture.OnEach(t, func(t *testing.T, d fixture.Database) {
		const n, rate = 200, 100
		_, all := stored(t, d, config, fixture.Several(n)...)
		r := request
		r.Rate, r.Concurrency = rate, 8
		out := working(t, all)
		run(t, all, out, quick)
		reach(t, all, start(t, all, r).ID, campaigns.Finished)
		wantIDs(t, out, n)
		sent := out.All()
		took := sent[n-1].At.Sub(sent[0].At)
		want := time.Duration(n-1) * time.Second / rate
		// The letters in hand of a worker that stood still come late, and the next ones in time.
		testkit.Check(t, took >= want-750*time.Millisecond, "%d letters at %d/s took %s", n, rate, took)
	})
}

// Feature V7, promise P4: a closing router waits for the letters in hand. Others can have the rest at once.
func TestClose(t *testing.T) {
	store, all := stored(t, fixture.SQLite, config, fixture.Several(20)...)
	begun, goOn, closed := make(chan string, 20), make(chan struct{}), make(chan struct{})
	var closing atomic.Bool
	out := &fixture.Outbox{Before: func(_ string, msg *message.Message) error {
		testkit.Check(t, !closing.Load(), "%s was begun while the router closes", msg.UUID)
		begun <- msg.UUID
		<-goOn
		return nil
	}}
	lasting := campaigns.WorkerConfig{Poll: 5 * time.Millisecond, Lease: time.Hour}
	worker := testkit.Must(campaigns.NewWorker(all, out, lasting))
	stop := testkit.RunRouter(t, watermill.NopLogger{}, func(r *message.Router) {
		r.AddPlugin(worker.Plugin)
		live := gochannel.NewGoChannel(gochannel.Config{}, nil)
		r.AddConsumerHandler("billing", "orders", live, func(*message.Message) error { return nil })
	})
	r := request
	r.Concurrency = 2
	c := start(t, all, r)
	first := map[string]bool{testkit.Receive(t, "a letter", begun): true, testkit.Receive(t, "another", begun): true}
	closing.Store(true)
	go func() { defer close(closed); stop() }()
	testkit.Eventually(t, "letters that were not begun are released", func() bool {
		n := 0
		err := hidden.Of(store).DB().QueryRow(`SELECT COUNT(*) FROM spillway_dead_letters WHERE leased_until > 0 AND token <> x''`).Scan(&n)
		return err == nil && n == len(first)
	})
	select {
	case <-closed:
		t.Error("the router did not wait for the letters in hand")
	default:
	}
	close(goOn)
	testkit.Receive(t, "the router's end", closed)
	marked := fixture.List(t, store, fixture.Status(letters.StatusRedriven))
	testkit.Check(t, len(marked) == 2 && first[marked[0].Original.UUID] && first[marked[1].Original.UUID],
		"%d letters are marked, of %s", len(marked), fmt.Sprint(first))
	closing.Store(false)
	run(t, all, out, lasting)
	reach(t, all, c.ID, campaigns.Finished)
	wantIDs(t, out, 20)
}
