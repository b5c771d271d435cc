package idempotency_test

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"slices"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

var outputRows = []row{
	{"I4-record", "a duplicate returns the recorded outputs, byte for byte and with their ids", (*cell).recordsOutputs},
	{"I4-ids", "ids are the same when a lost attempt is made again, and differ by key, consumer and index", (*cell).derivesIDs},
}

var publishedRows = []row{
	{"I4-no-mark", "without the mark a duplicate publishes them again, with the same ids", (*cell).doesNotMark},
	{"I4-mark", "once seen published, outputs are not published again; where that mark fails, they are, with the same ids", (*cell).losesMark},
}

// Feature I4, promise P7: outputs of any shape, and a record of a megabyte.
func (c *cell) recordsOutputs() {
	outputs := append(hostile(), message.NewMessage("large", bytes.Repeat([]byte{0, 0xff, 'x'}, 1<<20/3)))
	r := c.receiver(idempotency.ReceiverConfig{})
	first, err := r.Middleware(c.writeAnd(func(*message.Message) ([]*message.Message, error) { return outputs, nil }))(newMessage("m1"))
	testkit.Require(c, err == nil && len(first) == len(outputs), "%v %v", len(first), err)
	duplicate := newMessage("m1")
	duplicate.SetContext(context.WithValue(c.Context(), ctxKey{}, "second"))
	again, err := r.Middleware(c.write)(duplicate)
	testkit.Require(c, err == nil && len(again) == len(outputs), "%v %v", len(again), err)
	for i, want := range outputs {
		got := again[i]
		if got.UUID != first[i].UUID || got.UUID == "" || !bytes.Equal(got.Payload, want.Payload) || !maps.Equal(got.Metadata, want.Metadata) ||
			(got.Payload == nil) != (want.Payload == nil) || got.Context().Value(ctxKey{}) != "second" {
			c.Errorf("output %d is %.80q %.80q, and was %.80q %.80q", i, got.UUID, got.Payload, first[i].UUID, want.Payload)
		}
	}
	c.rows(1, 1)
}

// Feature I4, promise P7.
func (c *cell) derivesIDs() {
	ids := map[string]bool{}
	for _, key := range []idempotency.Key{{Consumer: "a", ID: "bc"}, {Consumer: "ab", ID: "c"}, {Consumer: "a", ID: "b"}} {
		var before []string
		for attempt := range 2 { // the row of the first is lost, as with a commit that never arrived
			h := c.receiver(idempotency.ReceiverConfig{Consumer: key.Consumer}).Middleware(
				func(*message.Message) ([]*message.Message, error) {
					return []*message.Message{newMessage(""), newMessage("")}, nil
				})
			out, err := h(newMessage(key.ID))
			testkit.Require(c, err == nil && len(out) == 2, "%v %v", out, err)
			testkit.Check(c, attempt != 1 || out[0].UUID == before[0] && out[1].UUID == before[1],
				"ids were %v, and are %s and %s", before, out[0].UUID, out[1].UUID)
			before = []string{out[0].UUID, out[1].UUID}
			c.exec(`DELETE FROM spillway_keys`)
		}
		for _, id := range before {
			if ids[id] = true; len(id) != 36 || id[14] != '8' {
				c.Errorf("%q is no UUID of version 8", id)
			}
		}
	}
	testkit.Check(c, len(ids) == 6, "6 outputs have %d ids", len(ids))
}

// produce is a handler with one effect and one output.
func (c *cell) produce(msg *message.Message) ([]*message.Message, error) {
	if _, err := c.write(msg); err != nil {
		return nil, err
	}
	return []*message.Message{message.NewMessage("", []byte("of "+msg.UUID))}, nil
}

// published passes deliveries of m1, and returns the outputs' ids.
func (c *cell) published(deliveries int, change func(*spillway.Config, *paper)) (ids []string) {
	c.Helper()
	letters, outputs := c.passed(c.produce, change, slices.Repeat([]*message.Message{newMessage("m1")}, deliveries)...)
	c.rows(1, 1)
	testkit.Check(c, len(letters) == 0, "dead letters: %+v", letters)
	for _, s := range outputs {
		ids = append(ids, s.ID)
		testkit.Check(c, s.ID != "" && s.ID == ids[0] && s.Payload == "of m1", "published %+v", s)
	}
	return ids
}

func (c *cell) recordedOutputs() (n int) {
	c.Helper()
	return count(c, c.db, `spillway_keys WHERE outputs IS NOT NULL`)
}

// Feature I4: at least once is what is promised, and what happens.
func (c *cell) doesNotMark() {
	ids := c.published(3, asItIs)
	testkit.Check(c, len(ids) == 3 && c.recordedOutputs() == 1,
		"published %d times, and %d records are left", len(ids), c.recordedOutputs())
}

// forgetful is a store whose marks fail at first.
type forgetful struct {
	idempotency.Store
	left atomic.Int64
}

func (s *forgetful) MarkPublished(ctx context.Context, entry idempotency.Entry) error {
	if s.left.Add(-1) >= 0 {
		return errors.New("the store is down")
	}
	return s.Store.MarkPublished(ctx, entry)
}

// Feature I4, promise P7: a mark that is lost is made by the duplicate that had to publish again, and the message whose
// mark failed is acked all the same. The crash matrix has the process end in between.
func (c *cell) losesMark() {
	ids := c.published(4, func(config *spillway.Config, out *paper) {
		s := &forgetful{Store: config.Idempotency}
		s.left.Store(2)
		out.after = func(*message.Message) error {
			testkit.Equal(c, "records while the output is being published", c.recordedOutputs(), 1)
			return nil
		}
		config.Idempotency, config.Receiver = s, &idempotency.ReceiverConfig{MarkPublished: true}
	})
	testkit.Check(c, len(ids) == 3 && c.recordedOutputs() == 0,
		"published %d times, and %d records are left, want 3 and 0", len(ids), c.recordedOutputs())
}
