package wmsql_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"sync"
	"testing"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/poison/wmsql"
	"github.com/watermill-spillway/spillway/redrive"
)

func TestPublisherConfig(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		for field, config := range map[string]wmsql.PublisherConfig{
			"DB":      {},
			"Timeout": {DB: b.db, Timeout: -1},
			"Schema":  {DB: b.db, Schema: (*wsql.DefaultPostgreSQLSchema)(nil)},
			"Schema ": {DB: b.db, Schema: b.stranger()},
		} {
			if _, err := wmsql.NewPublisher(config); err == nil || !strings.Contains(err.Error(), "PublisherConfig."+strings.TrimSpace(field)) {
				t.Errorf("%s: %v", field, err)
			}
		}
		if err := errors.Join(b.pub.Close(), b.pub.Close()); err != nil {
			t.Error(err)
		}
		if err := b.pub.Publish(b.topic, message.NewMessage("late", nil)); !errors.Is(err, wmsql.ErrClosed) {
			t.Error(err)
		}
	})
}

// stranger is watermill-sql's schema for another kind of database.
func (b *bench) stranger() wsql.SchemaAdapter {
	if b.isPostgres() {
		return wsql.DefaultMySQLSchema{}
	}
	return &wsql.DefaultPostgreSQLSchema{}
}

// A name that is no table, or whose table the database would name after another topic, is refused wherever it comes up:
// letters would land in the live table.
func TestTopicsThatAreNoTables(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		sub, live := b.subscriber(), strings.Repeat("x", 53)
		if !b.isPostgres() {
			live += "x"
		}
		if err := b.pub.InitializeTopics(live); err != nil {
			t.Fatal(err)
		}
		for _, topic := range []string{"", `a"b`, "a`b", `"; DROP TABLE effects; --`, "ä", "a b", live + ".dlq", live + "x"} {
			_, subscribed := sub.Subscribe(t.Context(), topic)
			_, counted := sub.Backlog(t.Context(), topic)
			for i, err := range []error{subscribed, counted, sub.SubscribeInitialize(topic), b.pub.InitializeTopics(topic), b.pub.Publish(topic, message.NewMessage("x", nil))} {
				if err == nil {
					t.Errorf("%q: %d is taken", topic, i)
				}
			}
		}
		if _, err := sub.Subscribe(t.Context(), live); err == nil || !strings.Contains(err.Error(), "choose a shorter topic") {
			t.Errorf("its table of positions is longer by 8 letters: %v", err)
		}
		if n := b.backlogOf(live); n != 0 {
			t.Errorf("%d messages in the live table", n)
		}
		if err := b.pub.Publish(live, message.NewMessage("x", nil)); err != nil {
			t.Error(err)
		}
	})
}

// A schema of the user's own that embeds watermill-sql's is measured too.
func TestTopicsOfOwnSchema(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		schema := b.embedded()
		pub, err := wmsql.NewPublisher(wmsql.PublisherConfig{DB: b.db, Schema: schema})
		if err != nil {
			t.Fatal(err)
		}
		sub := b.subscriber(func(c *wmsql.SubscriberConfig) { c.Schema = schema })
		long := strings.Repeat("x", 60)
		if pub.InitializeTopics(long) == nil || sub.SubscribeInitialize(long) == nil {
			t.Error("it is taken")
		}
	})
}

func (b *bench) backlogOf(topic string) (n int) {
	b.Helper()
	if err := b.db.QueryRow(`SELECT count(*) FROM ` + b.table(topic)).Scan(&n); err != nil {
		b.Fatal(err)
	}
	return n
}

// Without InitializeSchema a missing table is an error; with it many publishers at once create it.
func TestInitializeSchema(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		topic := b.topic + ".new"
		if err := b.pub.Publish(topic, message.NewMessage("x", nil)); err == nil {
			t.Fatal("there is a table")
		}
		var all sync.WaitGroup
		for range 8 {
			pub, err := wmsql.NewPublisher(wmsql.PublisherConfig{DB: b.db, InitializeSchema: true})
			if err != nil {
				t.Fatal(err)
			}
			sub := b.subscriber()
			all.Go(func() {
				if err := errors.Join(pub.Publish(topic, message.NewMessage("x", []byte{0})), sub.SubscribeInitialize(topic)); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if n := len(b.take(topic, 8)); n != 8 {
			t.Error(n)
		}
	})
}

// Decision 4: what the server would not take is told as too large, inside of a transaction too, where the server would
// end it together with the connection, on every attempt anew.
func TestTooLarge(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		if b.isPostgres() {
			t.Skip("PostgreSQL takes a GiB")
		}
		large := func() []byte { return make([]byte, 16<<20) }
		err := b.pub.Publish(b.topic, message.NewMessage("", large()))
		if !poison.IsTooLarge(err) || !errors.Is(err, poison.ErrTooLarge) {
			t.Errorf("%v", err)
		}
		if d := differs(b.through(message.NewMessage("fits", large()[1<<20:]))[0], message.NewMessage("fits", large()[1<<20:])); d != "" {
			t.Error("15 MiB: ", d)
		}
		b.run(b.subscriber(oneBatch), func(msg *message.Message) ([]*message.Message, error) {
			if err := b.write(msg, "effect"); err != nil || msg.UUID == "good" {
				return nil, err
			}
			if msg.UUID == "statement" {
				_, err := txOf(msg.Context()).Exec(`INSERT INTO effects (id, step) VALUES (?, ?)`, "large", string(large()))
				return nil, err
			}
			return []*message.Message{message.NewMessage("", large())}, nil
		})
		b.publish("output", "good", "statement")
		b.drained()
		if effects, letters := b.effects(), b.letters(); len(effects) != 1 || len(effects["good"]) != 1 || len(letters["output"]) != 1 || len(letters["statement"]) != 1 {
			t.Errorf("effects %v, letters %v", effects, letters)
		}
	})
}

// Feature D9: what a handler publishes with the context of its message commits with it, and is undone with a failed
// attempt; a call with messages of several contexts puts each where it belongs.
func TestPublishWithContext(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		var attempts deliveries
		seen := -1
		b.run(b.subscriber(), func(msg *message.Message) ([]*message.Message, error) {
			attempt := attempts.add(msg.UUID)
			of := func(ctx context.Context, id string) *message.Message {
				out := message.NewMessageWithContext(ctx, id, nil)
				return out
			}
			err := b.pub.Publish(b.outs, of(msg.Context(), "inside"), of(context.Background(), "outside"), of(msg.Context(), "inside too"))
			if seen < 0 {
				seen = b.backlogOf(b.outs)
			}
			if attempt == 1 {
				return nil, errors.Join(err, errors.New("once more"))
			}
			return nil, err
		})
		b.publish("x")
		b.drained()
		counts := map[string]int{}
		b.each(b.outs, func(msg *message.Message) { counts[msg.UUID]++ })
		if len(counts) != 3 || counts["inside"] != 1 || counts["inside too"] != 1 || counts["outside"] != 2 || seen != 1 {
			t.Errorf("%v, of which others saw %d before the commit", counts, seen)
		}
	})
}

// Feature D15: an output whose table is missing fails its own message, behind a savepoint, and the others of the batch
// commit; so does one that a handler publishes itself and shrugs off.
func TestOutputWithoutTable(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		b.publish("a", "ignores", "bad", "c")
		sub := b.subscriber(oneBatch)
		good := b.outs
		b.outs += ".missing"
		b.run(sub, func(msg *message.Message) ([]*message.Message, error) {
			out := message.NewMessageWithContext(msg.Context(), "", []byte(msg.UUID))
			switch err := b.write(msg, "effect"); {
			case err != nil:
				return nil, err
			case msg.UUID == "bad":
				return []*message.Message{out}, nil
			case msg.UUID == "ignores":
				if err := b.pub.Publish(b.outs, out); err == nil {
					t.Error("there is a table")
				}
			}
			return nil, b.pub.Publish(good, out)
		}, func(c *spillway.Config) { c.Outputs.Attempts = 2 })
		b.drained()
		b.outs = good
		letters := b.letters()
		if effects, outs := b.effects(), b.outputs(); len(effects) != 3 || len(outs) != 3 || effects["bad"] != nil && len(letters) != 1 {
			t.Errorf("effects %v, outputs %v", effects, outs)
		}
		if l := letters["bad"]; len(l) != 1 || l[0].Failure.Reason != "output_undeliverable" {
			t.Errorf("letters %+v", letters)
		}
	})
}

// On MySQL a statement that makes a table commits: ours is made elsewhere, and a failed attempt leaves the table and
// nothing else. Where it is there already nobody waits for anybody.
func TestInitializeInsideHandler(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		var attempts deliveries
		b.run(b.subscriber(), func(msg *message.Message) ([]*message.Message, error) {
			attempt := attempts.add(msg.UUID)
			if err := b.write(msg, "effect"); err != nil {
				return nil, err
			}
			for range 2 { // the second finds a table in which the first has written and not committed
				pub, err := wmsql.NewPublisher(wmsql.PublisherConfig{DB: b.db, InitializeSchema: true})
				if err != nil {
					return nil, err
				}
				if err := pub.Publish(b.topic+".new", message.NewMessageWithContext(msg.Context(), "", nil)); err != nil {
					return nil, err
				}
			}
			if attempt == 1 {
				return nil, errors.New("once more")
			}
			return nil, nil
		})
		b.publish("x")
		b.drained()
		if effects, n := b.effects(), b.backlogOf(b.topic+".new"); len(effects["x"]) != 1 || n != 2 || attempts.get()["x"] != 2 {
			t.Errorf("effects %v, %d published, attempts %v", effects, n, attempts.get())
		}
	})
}

// The context of a message that is settled is worth nothing any more, and says so.
func TestPublishTooLate(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		b.publish("nacked", "next")
		sub := b.subscriber()
		messages, err := sub.Subscribe(t.Context(), b.topic)
		if err != nil {
			t.Fatal(err)
		}
		nacked := <-messages
		nacked.Nack()
		again := <-messages
		err = b.pub.Publish(b.outs, message.NewMessageWithContext(nacked.Context(), "", nil))
		if !errors.Is(err, sql.ErrTxDone) {
			t.Errorf("%v", err)
		}
		again.Ack()
		(<-messages).Ack()
		b.until("both are acknowledged", func() bool { return b.backlog(b.topic, "") == 0 })
		if err := b.pub.Publish(b.outs, message.NewMessageWithContext(again.Context(), "by itself", nil)); err != nil {
			t.Errorf("of a message that was acked: %v", err)
		}
		if n := b.backlogOf(b.outs); n != 1 {
			t.Errorf("%d published", n)
		}
	})
}

// Promise P2, feature V1: a dead-letter table and back, id and metadata as they were.
func TestRedriveRoundTrip(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		sent := with(strings.Repeat("\xff", 40), message.Metadata{"binary": "\xff", "sig-b64": "//79", "plain": "ü", "\xfe": "key"}, []byte("\x00\xff"))
		back := make(chan *message.Message, 1)
		var handled deliveries
		b.run(b.subscriber(), func(msg *message.Message) ([]*message.Message, error) {
			if handled.add(msg.UUID) == 1 {
				return nil, classify.Permanent(errors.New("failed"))
			}
			back <- with(msg.UUID, msg.Metadata, msg.Payload)
			return nil, nil
		})
		if err := b.pub.Publish(b.topic, sent); err != nil {
			t.Fatal(err)
		}
		b.drained()
		sub := b.subscriber(func(c *wmsql.SubscriberConfig) { c.ConsumerGroup, c.InitializeSchema = "redrive", true })
		report, err := redrive.Drain(t.Context(), redrive.DrainTopicConfig{
			HandlerConfig: redrive.HandlerConfig{Publisher: b.pub, Park: b.pub, Allow: []string{b.topic}},
			Subscriber:    sub, Topic: b.topic + ".dlq", Backlog: sub.Backlog,
		})
		if err != nil || report.Redriven != 1 {
			t.Fatalf("%+v, %v", report, err)
		}
		got := <-back
		if got.Metadata[poison.KeyRedriveCount] != "1" {
			t.Errorf("%q", got.Metadata)
		}
		got.Metadata = poison.ProducersOwn(got.Metadata)
		if d := differs(got, sent); d != "" {
			t.Error(d)
		}
	})
}
