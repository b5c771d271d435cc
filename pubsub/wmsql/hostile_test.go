package wmsql_test

import (
	"errors"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/pubsub/wmsql"
)

// around handles three messages, of which the second is odd, in one batch, and returns what became of it.
func around(b *bench, odd func(msg *message.Message, attempt int) error, change ...func(*spillway.Config)) (runs *deliveries) {
	b.Helper()
	runs = &deliveries{}
	b.publish("before", "odd", "behind")
	b.run(b.subscriber(oneBatch), func(msg *message.Message) ([]*message.Message, error) {
		attempt := runs.add(msg.UUID)
		if msg.UUID == "odd" {
			return nil, odd(msg, attempt)
		}
		return b.whole(msg)
	}, change...)
	b.drained()
	effects, outputs := b.effects(), b.outputs()
	for _, id := range []string{"before", "behind"} {
		if len(effects[id]) != 2 || outputs[id] == 0 {
			b.Errorf("%s: effects %v, %d outputs", id, effects[id], outputs[id])
		}
	}
	return runs
}

// aside says why the odd message was set aside, or "" where it was not.
func (b *bench) aside() string {
	b.Helper()
	letters := b.letters()["odd"]
	if len(letters) > 1 {
		b.Errorf("%d letters", len(letters))
	}
	for _, letter := range letters {
		return letter.Failure.Reason
	}
	return ""
}

// Whatever a handler does to its own transaction, those before and behind it in the batch are handled and their effects
// are there, and what it did is seen.
func TestHandlerEndsTransaction(t *testing.T) {
	for name, test := range map[string]struct {
		do     func(b *bench, msg *message.Message) error
		reason string // of the letter, on PostgreSQL
		mysql  string
		effect int // of the odd message, -1 for any number
	}{
		"Commit": {do: func(b *bench, msg *message.Message) error { return txOf(msg.Context()).Commit() },
			reason: "permanent_error", mysql: "permanent_error"},
		"Rollback": {do: func(b *bench, msg *message.Message) error { return txOf(msg.Context()).Rollback() },
			reason: "permanent_error", mysql: "permanent_error"},
		"COMMIT":   {do: said(`COMMIT`), effect: 1},
		"ROLLBACK": {do: said(`ROLLBACK`), reason: "max_delivery_count_exceeded", mysql: "max_delivery_count_exceeded"},
		"COMMIT and fails": {do: func(b *bench, msg *message.Message) error {
			return errors.Join(said(`COMMIT`)(b, msg), errors.New("failed"))
		}, reason: "max_delivery_count_exceeded", mysql: "max_delivery_count_exceeded", effect: 1},
		"ROLLBACK and fails": {do: func(b *bench, msg *message.Message) error {
			return errors.Join(said(`ROLLBACK`)(b, msg), errors.New("failed"))
		}, reason: "max_delivery_count_exceeded", mysql: "max_delivery_count_exceeded"},
		"a table": {do: said(`CREATE TABLE another (id INT)`), effect: 1},
		"a table and fails": {do: func(b *bench, msg *message.Message) error {
			return errors.Join(said(`CREATE TABLE another (id INT)`)(b, msg), errors.New("failed"))
		}, reason: "unknown_max_retries", mysql: "max_delivery_count_exceeded", effect: -1},
		"no such function": {do: said(`SELECT spillway_no_such_function()`), reason: "permanent_error", mysql: "unknown_max_retries"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onEach(t, func(t *testing.T, b *bench) {
				runs := around(b, func(msg *message.Message, _ int) error {
					return errors.Join(b.write(msg, "effect"), test.do(b, msg))
				})
				if reason := b.aside(); reason != b.sql(test.reason, test.mysql) {
					t.Errorf("set aside for %q, runs %v", reason, runs.get())
				}
				if n := len(b.effects()["odd"]); n != test.effect && test.effect >= 0 {
					t.Errorf("%d effects, runs %v", n, runs.get())
				}
			})
		})
	}
}

func said(statement string) func(*bench, *message.Message) error {
	return func(_ *bench, msg *message.Message) error {
		_, err := txOf(msg.Context()).Exec(statement)
		return err
	}
}

// A handler that shrugs off the error of a statement has failed where the database commits nothing after that; and rows
// that it leaves open do no harm.
func TestHandlerIsCareless(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		around(b, func(msg *message.Message, _ int) error {
			_, _ = txOf(msg.Context()).Exec(`INSERT INTO effects (nowhere) VALUES (1)`)
			_ = b.write(msg, "effect")
			return nil
		})
		if reason, want := b.aside(), b.sql("permanent_error", ""); reason != want {
			t.Errorf("set aside for %q", reason)
		}
		if n := len(b.effects()["odd"]); b.isPostgres() != (n == 0) {
			t.Errorf("%d effects", n)
		}
	})
	onEach(t, func(t *testing.T, b *bench) {
		around(b, func(msg *message.Message, _ int) error {
			err := b.write(msg, "effect")
			rows, failed := txOf(msg.Context()).Query(b.sql(`SELECT generate_series(1, 100000)`, `SELECT seq FROM seq_1_to_100000`)) //nolint
			if failed == nil {
				rows.Next()
			}
			return errors.Join(err, failed)
		})
		if n := len(b.effects()["odd"]); n != 1 || b.aside() != "" {
			t.Errorf("%d effects, set aside for %q", n, b.aside())
		}
	})
}

// A query that fails behind the rows that were read spoils the attempt as any other does.
func TestLateErrorOfRows(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		if !b.isPostgres() {
			t.Skip("only PostgreSQL refuses what comes after it")
		}
		around(b, func(msg *message.Message, _ int) error {
			var n int
			_ = txOf(msg.Context()).QueryRow(`SELECT 1 / (3 - n) FROM generate_series(1, 5) AS n`).Scan(&n)
			return nil
		})
		if reason := b.aside(); reason != "permanent_error" {
			t.Errorf("set aside for %q", reason)
		}
	})
}

// Between two deliveries of a nacked message there is no transaction. Each delivery is later than the one before:
// TestBatchNacked.
func TestNackBackoffHoldsNothing(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		b.publish("a")
		messages := b.messages(b.subscriber(func(c *wmsql.SubscriberConfig) { c.NackBackoff = time.Hour }))
		msg := <-messages
		if !b.held() {
			t.Error("a message without a transaction")
		}
		msg.Nack()
		b.until("the transaction has ended, within the hour", func() bool { return !b.held() })
	})
}
