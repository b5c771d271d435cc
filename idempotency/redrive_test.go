package idempotency_test

import (
	"errors"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/middleware"
)

var redriveRows = []row{
	{"I9-failed", "a message that was dead-lettered is applied when it is redriven, once, and a copy is absorbed", (*cell).redriven},
}

// Feature I9, promises P1, P7: failed for good, and failed too often. What a redriven message produced is published
// once: the key forgets it then, which is how a campaign learns of it, so a copy of the redriven message publishes
// nothing again.
func (c *cell) redriven() {
	twice := func(config *spillway.Config, _ *paper) {
		config.Retry = middleware.RetryConfig{Attempts: 2}
		config.Retry.Backoff.Initial = 1
	}
	for i, cause := range []error{classify.Permanent(errors.New("boom")), classify.Transient(errors.New("boom"))} {
		id := []string{"permanent", "transient"}[i]
		fail := c.writeAnd(func(msg *message.Message) ([]*message.Message, error) {
			return []*message.Message{newMessage("")}, cause
		})
		letters, outputs := c.passed(fail, twice, newMessage(id))
		testkit.Require(c, len(letters) == 1 && letters[0].Topic == "orders.dlq" && len(outputs) == 0,
			"%v %v", letters, outputs)
		c.rows(i, i)
		again := newMessage(letters[0].ID)
		again.Metadata.Set("x-redrive-count", "1")
		letters, outputs = c.passed(c.produce, twice, again, again)
		testkit.Require(c, len(letters) == 0 && len(outputs) == 1, "%v %v", letters, outputs)
		c.rows(i+1, i+1)
	}
}

// Feature I6, bad input: a handler's version without a key is an error that names the handler.
func TestHandlerKeyConfig(t *testing.T) {
	config := idempotency.ReceiverConfig{Handlers: map[string]idempotency.HandlerKey{"prices": {Version: idempotency.VersionMetadata("v")}}}
	_, err := idempotency.NewReceiver(storeOn(newCell(t, onSQLite).db), config)
	testkit.Says(t, err, `ReceiverConfig.Handlers["prices"].Version is set, and Key is not`)
}
