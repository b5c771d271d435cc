package campaigns_test

import (
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/internal/fixture"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Features D7, V4: a store takes letters that others made, by their topic and cause, and a campaign sends each to its
// origin without their headers: to none that is not allowed, and none that is a place without a message.
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
	out := &fixture.Outbox{}
	run(t, all, out, quick)
	reach(t, all, c.ID, campaigns.Finished)
	for _, sent := range out.All() {
		_, err := poison.Decode(sent.Msg)
		own := poison.Inside().ProducerMetadata(sent.Msg.Metadata)
		testkit.Check(t, err != nil && sent.Topic == "orders" && len(own) == 1 && own["tenant"] == "blue" && string(sent.Msg.Payload) == "{}",
			"%s went to %s with %q", sent.Msg.UUID, sent.Topic, sent.Msg.Metadata)
	}
	wantIDs(t, out, 3)
}
