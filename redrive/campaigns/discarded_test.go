package campaigns_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/hidden"
	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/testing/fixture"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Features V7, D14, promise P6: no request takes a letter that was erased, or given up and not restored. Plans say so.
func TestDiscarded(t *testing.T) {
	fixture.OnEach(t, func(t *testing.T, d fixture.Database) {
		store, all := stored(t, d, config,
			fixture.Letter("1", "{}"), fixture.Letter("2", "{}"), fixture.Letter("3", "{}"), fixture.Letter("4", "{}"),
			fixture.Letter("5", "{}"))
		gaveUp := letters.Act{By: "ann", Reason: "a test"}
		discard := func(id string) int64 {
			l := fixture.List(t, store, letters.Filter{IDs: []string{id}})[0]
			testkit.Returns(t, 1)(store.MarkAll(t.Context(), letters.Filter{IDs: []string{id}}, letters.StatusDiscarded, gaveUp))
			return l.Seq
		}
		first := discard("1")
		left := func(out []campaigns.LeftOut, why string, n int) bool {
			return len(out) == 1 && out[0].Why == why && out[0].Letters == n
		}

		r := request
		r.Filter = letters.Filter{Statuses: letters.Statuses()}
		plan, err := all.Plan(t.Context(), r)
		testkit.Check(t, err == nil && plan.Letters == 4 && left(plan.LeftOut, "discarded", 1),
			"the plan of every state: %d letters, left out %+v, %v", plan.Letters, plan.LeftOut, err)
		r.NotBefore = time.Now().Add(time.Hour)
		c := start(t, all, r)
		testkit.Check(t, c.Selected == 4 && left(c.LeftOut, "discarded", 1), "a campaign of every state: %+v", c)
		discard("2") // it is in the campaign
		for status, says := range map[letters.Status]string{letters.StatusDiscarded: "restore them first", letters.StatusErased: "no message any more"} {
			only := request
			only.Filter = letters.Filter{Statuses: []letters.Status{status}}
			_, err := all.Plan(t.Context(), only)
			testkit.Check(t, errors.Is(err, campaigns.ErrRequest) && strings.Contains(err.Error(), says),
				"a plan of %s letters alone: %v", status, err)
		}
		named := request
		named.Seqs, named.Filter.Statuses = []int64{first}, letters.Statuses()
		plan, err = all.Plan(t.Context(), named)
		testkit.Check(t, err == nil && plan.Letters == 0 && left(plan.LeftOut, "discarded", 1),
			"a plan of a discarded letter: %+v, %v", plan, err)
		_, err = all.Start(t.Context(), named)
		testkit.Check(t, errors.Is(err, campaigns.ErrNoLetters) && strings.Contains(err.Error(), "restore them first"),
			"a campaign of a discarded letter: %v", err)
		testkit.Must(all.Cancel(t.Context(), c.ID, act))

		r.NotBefore = time.Time{}
		c = start(t, all, r)
		discard("3") // it may be in the hand of no worker: none runs yet
		testkit.Must(hidden.Of(store).Erase(t.Context(), letters.Filter{IDs: []string{"5"}}, gaveUp, inside.EraseOptions{}))
		out := working(t, all)
		c = reach(t, all, c.ID, campaigns.Finished)
		sent := out.All()
		testkit.Check(t, len(sent) == 1 && sent[0].Msg.UUID == "4" && c.Gone == 2,
			"%d letters are published, %+v", len(sent), c)
		testkit.Returns(t, 3)(store.MarkAll(t.Context(), letters.Filter{Statuses: []letters.Status{letters.StatusDiscarded}}, letters.StatusWaiting, gaveUp))
		c = reach(t, all, start(t, all, request).ID, campaigns.Finished)
		testkit.Check(t, c.Redriven == 3, "after they were restored: %+v", c)
	})
}

// Features D15, I9, V7: a person lets handlers run again. A letter whose key cannot be removed is not published.
func TestHandleAgain(t *testing.T) {
	fixture.OnEach(t, func(t *testing.T, d fixture.Database) {
		db := d.Create(t)()
		store := fixture.StoreOn(t, db)
		all := open(t, store, config)
		of := func(reason string) func(*poison.Letter) {
			return func(l *poison.Letter) { l.Failure.Reason = reason }
		}
		fixture.Publish(t, store, "orders.dlq", fixture.Letter("output", "{}", of(classify.ReasonOutput)), fixture.Letter("another", "{}"))
		r := request
		r.HandleAgain = true
		_, planned := all.Plan(t.Context(), r)
		_, started := all.Start(t.Context(), r)
		for _, err := range []error{planned, started} {
			testkit.Check(t, errors.Is(err, campaigns.ErrRequest) &&
				strings.Contains(err.Error(), "Request.HandleAgain"), "without keys: %v", err)
		}
		keys := testkit.Must(idempotency.NewStore(t.Context(), db, "shop"))
		for _, id := range []string{"output", "another"} {
			key := idempotency.Key{Consumer: keys.Consumer("billing"), ID: id}
			testkit.NoError(t, testkit.Must(keys.Claim(t.Context(), idempotency.Entry{Key: key})).Commit([]byte{1, 0}))
		}
		out := &fixture.Outbox{}
		stop := run(t, all, out, quick)
		c := reach(t, all, start(t, all, r).ID, campaigns.Finished)
		testkit.Check(t, c.Redriven == 2 && c.Request.HandleAgain, "%+v", c)
		var id string
		testkit.NoError(t, db.QueryRow(`SELECT MIN(id) FROM spillway_keys HAVING COUNT(*) = 1`).Scan(&id))
		testkit.Equal(t, "the key that is left", id, "another")
		events, err := store.Audit(t.Context(), letters.EventFilter{Kinds: []letters.EventKind{letters.EventKeyRemoved}})
		testkit.Check(t, err == nil && len(events) == 1 && events[0].MessageID == "output" &&
			events[0].RedriveID == c.ID, "%+v %v", events, err)

		stop()
		fixture.Publish(t, store, "orders.dlq", fixture.Letter("stays", "{}", of(classify.ReasonOutput)))
		c = start(t, all, r)
		testkit.Must(db.Exec(`ALTER TABLE spillway_keys RENAME COLUMN expires_at TO hidden`)) // so that none can be removed
		run(t, all, out, quick)
		c = reach(t, all, c.ID, campaigns.Finished)
		behind, err := hidden.Of(all).LeftBehind(t.Context(), c.ID)
		testkit.Check(t, err == nil && c.Failed == 1 && len(behind) == 1 &&
			strings.Contains(behind[0].Why, "run again") && out.IDs()["stays"] <= 0,
			"%+v, %+v, %v, published %v", c, behind, err, out.IDs())
	})
}

// Features D7, V4: letters that others made go to their origin without their headers, if it is allowed.
func TestForeignLetters(t *testing.T) {
	store := fixture.SQLite.NewStore(t)
	all := open(t, store, config)
	for id, metadata := range map[string]message.Metadata{
		"streams":  {"__streams.errors.topic": "orders", "__streams.errors.exception": "Rejected", "__streams.errors.message": "no"},
		"share":    {"__dlq.errors.topic": "orders", "__dlq.errors.group": "billing", "__dlq.errors.delivery.count": "5"},
		"bare":     {"__dlq.errors.topic": "orders", "__dlq.errors.offset": "7"},
		"rabbitmq": {"x-death": `[{"count":1,"queue":"orders","reason":"expired"}]`, "x-first-death-queue": "orders"},
		"forged":   {"x-death": `[{"count":1,"queue":"payments","reason":"expired"}]`, "x-first-death-queue": "orders"},
	} {
		msg := message.NewMessage(id, []byte("{}"))
		if id == "bare" {
			msg.Payload = nil
		}
		msg.Metadata = metadata
		msg.Metadata["tenant"] = "blue"
		testkit.NoError(t, store.Publish("theirs", msg))
	}
	groups := testkit.Must(store.Groups(t.Context(), letters.Filter{Reasons: []string{"expired"}, Topics: []string{"orders"}}))
	testkit.Check(t, len(groups) == 1 && groups[0].Count == 1, "by reason and topic: %+v", groups)
	c := start(t, all, request)
	testkit.Check(t, c.Selected == 3 && len(c.LeftOut) == 2, "%+v", c)
	out := working(t, all)
	reach(t, all, c.ID, campaigns.Finished)
	for _, sent := range out.All() {
		_, err := poison.Decode(sent.Msg)
		own := inside.Poison.ProducerMetadata(sent.Msg.Metadata)
		testkit.Check(t, err != nil && sent.Topic == "orders" && len(own) == 1 && own["tenant"] == "blue" && string(sent.Msg.Payload) == "{}",
			"%s went to %s with %q", sent.Msg.UUID, sent.Topic, sent.Msg.Metadata)
	}
	wantIDs(t, out, 3)
}
