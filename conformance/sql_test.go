package conformance_test

import (
	"context"
	"database/sql"
	"os"
	"testing"
	"time"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/conformance"
	"github.com/watermill-spillway/spillway/delay"
	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/testing/results"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/pubsub/wmsql"
)

// The suite on tables of PostgreSQL and MariaDB, with our subscriber and with watermill-sql's own, on the same tables.
func TestSQL(t *testing.T) {
	t.Parallel()
	for _, server := range []sqlServer{postgres, mariadb} {
		t.Run(server.Name, func(t *testing.T) {
			t.Parallel()
			s := server.start(t)
			t.Run("ours", func(t *testing.T) { conformance.Run(t, s.target(server.Name)) })
			if server.loses && os.Getenv(results.Variable) == "" {
				return // PostgreSQL's column shows the subscriber, and most rows are pinned here
			}
			t.Run("stock", func(t *testing.T) { conformance.Run(t, s.stock(server.Name+"-stock")) })
		})
	}
}

const oneAtATime = "K17: one member of a group consumes at a time, and the others wait for it"

func (s *tables) target(name string) conformance.Target {
	subscriber := func(t testing.TB, db *sql.DB, group string) *wmsql.Subscriber {
		return testkit.Must(wmsql.NewSubscriber(t.Context(), db, wmsql.SubscriberConfig{
			ConsumerGroup: group, PollInterval: 10 * time.Millisecond, NackBackoff: 20 * time.Millisecond,
		}))
	}
	return conformance.Target{
		Name:       name,
		Publisher:  func(t testing.TB) message.Publisher { return s.publisher(t, s.db, 0) },
		Subscriber: func(t testing.TB, group string) message.Subscriber { return subscriber(t, s.db, group) },
		Ordered: func(t testing.TB, group string) (message.Publisher, message.Subscriber) {
			sub := testkit.Must(wmsql.NewSubscriber(t.Context(), s.db, wmsql.SubscriberConfig{ConsumerGroup: group, PollInterval: 10 * time.Millisecond,
				Key: func(msg *message.Message) string { return msg.Metadata.Get("tenant") }}))
			return s.publisher(t, s.db, 0), sub
		},
		Origin:  wmsql.Origin,
		Backlog: s.backlog,
		Database: func(t testing.TB) (*sql.DB, idempotency.Store) {
			keys := testkit.Must(wmsql.Join(t.Context(), subscriber(t, s.db, ""), "conformance"))
			return s.db, keys
		},
		Delays:      func(t testing.TB) *delay.Store { return s.delays(t) },
		Holds:       true,
		CreateTopic: s.createTopic,
		BadTopic:    "no topic of SQL!",
		Origins:     []string{poison.KeyOriginalOffset, poison.KeyOriginalGroup},
		Hostile:     s.hostile(),
		DeleteTopic: s.deleteTopic,
		ReadOnly:    s.readOnly,
		Restart:     s.restart,
		Service:     s.service,
		Address:     s.address,
		Through: func(t testing.TB, address string) message.Publisher {
			return s.publisher(t, s.through(t, address), 5*time.Second) // F5 answers after up to 0.4 s; a first publish takes six answers
		},
		SubscriberThrough: func(t testing.TB, group, address string) message.Subscriber {
			return subscriber(t, s.through(t, address), group)
		},
		Pins: map[string]string{"F6": oneAtATime, "F8": oneAtATime, "K17": oneAtATime},
	}
}

// stock is watermill-sql's own subscriber; letters and outputs are published by ours, in their own transactions.
func (s *tables) stock(name string) conformance.Target {
	target := s.target(name)
	target.Only = conformance.SecondColumn()
	target.Database, target.SubscriberThrough, target.Origins, target.Ordered = nil, nil, nil, nil
	target.Subscriber = func(t testing.TB, group string) message.Subscriber {
		return testkit.Must(wsql.NewSubscriber(s.db, wsql.SubscriberConfig{
			ConsumerGroup: group, SchemaAdapter: s.schema, OffsetsAdapter: s.offsets, InitializeSchema: true,
			PollInterval: 10 * time.Millisecond, ResendInterval: 20 * time.Millisecond, RetryInterval: 50 * time.Millisecond,
		}, nil))
	}
	target.BrokersOwn = []string{"x-sql-carried"}
	const columns = "K15: the column takes ids of 36 characters; what ours carries aside, only ours puts back"
	const text = "K9: the column takes text; what ours carries aside, only ours puts back"
	const still = "K14: stands still at a row that it cannot read"
	target.Pins = map[string]string{
		"D8": still, "H3/metadata with a number": still, "H3/metadata that is an array": still,
		"H10/id of 300 bytes": columns, "K15/id of 300 bytes": columns, "K15/id with NUL": columns, "K15/id not UTF-8": columns,
		"K9/binary values": text, "K9/values with NUL": text, "K9/values not UTF-8": text, "K9/keys not UTF-8": text,
		"K14": still, "K17": oneAtATime,
		"D9": "K18: commits half-done work at its deadline and at Close, so no write may join its transaction",
		"F6": oneAtATime, "F8": oneAtATime,
		"F7":   "K11: shares its pool of connections with its publishers",
		"R12b": "K18: has its effects elsewhere: F2 restarts the server of its messages",
		"V3":   "K13: closed within a batch, it forgets what was acked, and gives the letters of a drain again",
	}
	if s.loses {
		const locks = "K1: holds locks at the end of the table while a message comes again, and publishers wait for them"
		for _, id := range []string{"K1", "K5", "K6", "K7", "P1", "P3", "R5", "C5", "V1b", "H6", "H7", "R12g", "F1", "F2", "F3", "F4", "F5"} {
			target.Pins[id] = locks
		}
		target.Pins["R10/the broker's own"] = locks
		target.Pins["H5"] = "K1: loses messages of concurrent publishers, whose numbers become visible out of order"
	}
	return target
}

func (s *tables) publisher(t testing.TB, db *sql.DB, timeout time.Duration) message.Publisher {
	pub := testkit.Must(wmsql.NewPublisher(t.Context(), db, wmsql.PublisherConfig{Timeout: timeout}))
	return unreadable{pub, s}
}

func (s *tables) backlog(t testing.TB, group string) func(context.Context, string) (int, error) {
	sub := testkit.Must(wmsql.NewSubscriber(t.Context(), s.db, wmsql.SubscriberConfig{ConsumerGroup: group}))
	return func(ctx context.Context, topic string) (int, error) {
		if err := sub.SubscribeInitialize(topic); err != nil {
			return 0, err
		}
		return sub.Backlog(ctx, topic)
	}
}
