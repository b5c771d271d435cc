package wmsql_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/pubsub/wmsql"
)

func said(statement string) func(*bench, *message.Message) error {
	return func(_ *bench, msg *message.Message) error {
		_, err := txOf(msg.Context()).Exec(statement)
		return err
	}
}

func fails(do func(*bench, *message.Message) error) func(*bench, *message.Message) error {
	return func(b *bench, msg *message.Message) error { return errors.Join(do(b, msg), errors.New("failed")) }
}

// Whatever a handler does to its transaction, those beside it in the batch take effect, and what it did is seen.
func TestHandlerEndsTransaction(t *testing.T) {
	const given, permanent = "max_delivery_count_exceeded", "permanent_error"
	for name, test := range map[string]struct {
		do              func(b *bench, msg *message.Message) error
		postgres, mysql string // why the message is set aside, and how many effects it has
	}{
		"Commit": {func(_ *bench, msg *message.Message) error { return txOf(msg.Context()).Commit() },
			permanent + " 0", permanent + " 0"},
		"COMMIT":            {said(`COMMIT`), " 1", " 1"},
		"ROLLBACK":          {said(`ROLLBACK`), given + " 0", given + " 0"},
		"COMMIT and fails":  {fails(said(`COMMIT`)), given + " 1", given + " 1"},
		"a table":           {said(`CREATE TABLE another (id INT)`), " 1", " 1"},
		"a table and fails": {fails(said(`CREATE TABLE another (id INT)`)), "unknown_max_retries ", given},
		// PostgreSQL commits nothing after an error that the handler shrugs off.
		"is careless": {func(b *bench, msg *message.Message) error {
			_ = said(`INSERT INTO effects (nowhere) VALUES (1)`)(b, msg)
			_ = b.write(msg, "effect")
			return nil
		}, permanent + " 0", " 2"},
		"an error behind rows": {func(b *bench, msg *message.Message) error {
			rows := b.sql(`SELECT 1 / (3 - n) FROM generate_series(1, 5) AS n`, `SELECT 1`)
			_ = txOf(msg.Context()).QueryRow(rows).Scan(new(int))
			return nil
		}, permanent + " 0", " 1"},
		"leaves rows open": {func(b *bench, msg *message.Message) error {
			query := b.sql(`SELECT generate_series(1, 100000)`, `SELECT seq FROM seq_1_to_100000`)
			rows, err := txOf(msg.Context()).Query(query) //nolint
			if err == nil {
				rows.Next()
			}
			return err
		}, " 1", " 1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onEach(t, func(t *testing.T, b *bench) {
				b.publish("before", "odd", "behind")
				b.run(b.subscriber(oneBatch), func(msg *message.Message) ([]*message.Message, error) {
					if msg.UUID != "odd" {
						return b.whole(msg)
					}
					return nil, errors.Join(b.write(msg, "effect"), test.do(b, msg))
				})
				b.drained()
				effects, outputs := b.effects(), b.outputs()
				for _, id := range []string{"before", "behind"} {
					testkit.Check(t, len(effects[id]) == 2 && outputs[id] > 0, "%s: effects %v, outputs %v", id,
						effects, outputs)
				}
				got := fmt.Sprint(b.aside("odd"), " ", len(effects["odd"]))
				testkit.Check(t, strings.HasPrefix(got, b.sql(test.postgres, test.mysql)), "became %q", got)
			})
		})
	}
}

// Between two deliveries of a nacked message there is no transaction.
func TestNackBackoffHoldsNothing(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		b.publish("a")
		messages := b.messages(b.subscriber(func(c *wmsql.SubscriberConfig) { *wmsql.NackBackoff(c) = time.Hour }))
		msg := <-messages
		testkit.Check(t, b.held(), "a message without a transaction")
		msg.Nack()
		b.until("the transaction has ended, within the hour", func() bool { return !b.held() })
	})
}
