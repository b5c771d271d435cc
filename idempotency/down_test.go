package idempotency_test

import (
	"errors"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

// A server is cut off by a proxy in between, and a file by its driver.
var downRows = []row{
	{"P1-down-claim", "a store that is down at claim gives new and applied messages back, and the handler is not called", (*cell).downAtClaim},
	{"P1-down-commit", "a store that goes down under the handler takes everything back", (*cell).downAtCommit},
	{"P7-commit-lost", "a connection cut before the database has the COMMIT: nothing is applied", func(c *cell) { c.cutAtCommit(false) }},
	{"P7-answer-lost", "a connection cut between COMMIT and its answer: an error, and the next delivery finds the key", func(c *cell) { c.cutAtCommit(true) }},
}

// broken is a receiver over a line, which holds no message for long, and what has a delivery of m1 fail.
func (c *cell) broken(config ...idempotency.ReceiverConfig) (message.HandlerMiddleware, line, func(message.HandlerFunc, ...string)) {
	c.Helper()
	c.store(c.db)
	db, l := c.over()
	own := c.receiverOn(c.store(db), append(config, idempotency.ReceiverConfig{})[0])
	r := func(h message.HandlerFunc) message.HandlerFunc { return heldBriefly(own.Middleware(h)) }
	return r, l, func(h message.HandlerFunc, want ...string) {
		c.Helper()
		out, err := r(h)(newMessage("m1"))
		testkit.Check(c, out == nil && requeued(err), "%v, not given back: %v", out, err)
		c.explains(err, append(want, "see that the database is up")...)
		testkit.Equal(c, "connections are in use", db.Stats().InUse, 0)
	}
}

// Promises P1, P7, feature I1: a message that may be a new one or not is called neither.
func (c *cell) downAtClaim() {
	r, l, fails := c.broken()
	for effects := range 2 { // at first the message is new
		l.cut()
		never := func(*message.Message) ([]*message.Message, error) { c.Error("the handler was called"); return nil, nil }
		for range 2 {
			fails(never, "claim")
		}
		c.rows(effects, effects)
		l.mend()
		out, err := r(c.produce)(newMessage("m1"))
		if requeued(err) { // lib/pq notices at its next use that an idle connection was cut
			out, err = r(c.produce)(newMessage("m1"))
		}
		testkit.Require(c, err == nil && len(out) == 1, "%v %v", out, err)
		c.rows(1, 1)
	}
}

// Promise P1, feature I2: both where the handler has outputs to record and where it has none.
func (c *cell) downAtCommit() {
	r, l, fails := c.broken()
	for _, h := range []message.HandlerFunc{c.write, c.produce} {
		fails(func(msg *message.Message) ([]*message.Message, error) {
			out, err := h(msg)
			l.cut()
			return out, err
		}, "commit")
		c.rows(0, 0)
		l.mend()
	}
	for _, boom := range []error{classify.Transient(errors.New("boom")), classify.Permanent(errors.New("boom"))} {
		_, err := r(func(msg *message.Message) ([]*message.Message, error) {
			_, _ = c.write(msg)
			l.cut()
			return nil, boom
		})(newMessage("m1"))
		own := class(boom) == classify.ClassPermanent || c.says == "sqlite"
		testkit.Check(c, (!own || err == boom) && (own || requeued(err)), "the handler's error became %v", err)
		c.rows(0, 0)
		l.mend()
	}
	c.applies(r(c.write), newMessage("m1"))
	c.rows(1, 1)
}

// Promise P7, features I2, I4: by the next delivery everything is as it should be, whatever the database had of the
// COMMIT. Outputs have the ids of the attempt that committed, also where each attempt gives them new ones: nothing of
// an attempt is published before its commit.
func (c *cell) cutAtCommit(answer bool) {
	r, l, fails := c.broken()
	l.cutAtCommit(answer)
	var ids []string // of attempts
	h := c.writeAnd(func(*message.Message) ([]*message.Message, error) {
		ids = append(ids, watermill.NewUUID())
		return []*message.Message{message.NewMessage(ids[len(ids)-1], []byte("out"))}, nil
	})
	fails(h, "commit")
	attempts := 2 // the first came to nothing
	if answer {
		attempts = 1
	}
	c.rows(2-attempts, 2-attempts)
	for range 2 {
		out, err := r(h)(newMessage("m1"))
		testkit.Require(c, err == nil && len(out) == 1 && string(out[0].Payload) == "out" && len(ids) == attempts,
			"%v %v %v", out, err, ids)
		testkit.Equal(c, "published of the attempts", out[0].UUID, ids[attempts-1])
	}
	c.rows(1, 1)
}
