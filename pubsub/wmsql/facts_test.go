package wmsql_test

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/pubsub/wmsql"
)

// The facts about watermill-sql that this package answers to. When one of these tests fails, watermill-sql repaired it:
// say so in the README. TestFactStockLosesRows is another one.

const half = `INSERT INTO effects (id, step) VALUES ('a', 'half')`

// Fact, decision 8: at its deadline, and at Close, watermill-sql's subscriber commits what a handler has half done; a
// key among that would absorb the message. TestBatchOverrun and TestBatchCloseCuts show that ours undoes it.
func TestFactWatermillCommitsHalf(t *testing.T) {
	for name, end := range map[string]func(*wsql.Subscriber){
		"deadline": func(*wsql.Subscriber) {}, "close": func(s *wsql.Subscriber) { _ = s.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			onEach(t, func(t *testing.T, b *bench) {
				b.publish("a")
				deadline := 100 * time.Millisecond
				if name == "close" {
					deadline = time.Minute
				}
				sub, messages := b.stock(deadline)
				if err := do(t, <-messages, half); err != nil {
					t.Fatal(err)
				}
				end(sub)
				b.until("half of it is committed", func() bool { return len(b.effects()["a"]) == 1 })
				if n := b.backlog(b.topic, ""); n != 1 {
					t.Errorf("the message is acknowledged: %d", n)
				}
			})
		})
	}
}

// Fact, decision 8: in its REPEATABLE READ a key that was committed meanwhile is an error, for every message of a batch
// of
// 100. TestKeyCommittedMeanwhile shows that ours finds the key.
func TestFactWatermillCannotSeeKeys(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		if !b.isPostgres() {
			t.Skip("there it is SERIALIZABLE")
		}
		b.exec(`CREATE TABLE seen (id text PRIMARY KEY)`)
		b.publish("a")
		_, messages := b.stock(time.Minute)
		msg := <-messages
		b.exec(`INSERT INTO seen VALUES ('a')`)
		if err := do(t, msg, `INSERT INTO seen VALUES ('a') ON CONFLICT DO NOTHING`); err == nil || !strings.Contains(err.Error(), "40001") {
			t.Errorf("it finds the key: %v", err)
		}
	})
}

// read tells how many blocks PostgreSQL touches for a query.
func (b *bench) read(query wsql.Query) int {
	b.Helper()
	rows, err := b.db.Query(`EXPLAIN (ANALYZE, BUFFERS) `+query.Query, query.Args...)
	if err != nil {
		b.Fatal(err)
	}
	defer rows.Close()
	most := 0
	for rows.Next() {
		var line string
		if err := rows.Scan(&line); err != nil {
			b.Fatal(err)
		}
		if !strings.Contains(line, "Buffers: shared") {
			continue
		}
		blocks := 0
		for _, n := range regexp.MustCompile(`(?:hit|read)=(\d+)`).FindAllStringSubmatch(line, -1) {
			count, _ := strconv.Atoi(n[1])
			blocks += count
		}
		most = max(most, blocks)
	}
	return most
}

// Fact: watermill-sql reads all that waits to find the next message; ours reads the same few blocks at any backlog.
func TestFactWatermillReadsTheBacklog(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		if !b.isPostgres() {
			t.Skip("there an index of one column answers")
		}
		stock := wsql.DefaultPostgreSQLSchema{SubscribeBatchSize: 1}.SelectQuery(b.topic, "", wsql.DefaultPostgreSQLOffsetsAdapter{})
		sub := b.subscriber()
		if _, err := sub.Subscribe(t.Context(), b.topic); err != nil { // registers the group
			t.Fatal(err)
		}
		if err := sub.Close(); err != nil {
			t.Fatal(err)
		}
		touched := map[string][]int{}
		for range 2 {
			b.exec(`INSERT INTO ` + b.table(b.topic) + ` (uuid, payload, metadata, transaction_id)
SELECT n::text, 'x', '{}', (3 + n)::text::xid8 FROM generate_series(1, 10000) AS n`)
			b.exec(`ANALYZE ` + b.table(b.topic))
			touched["stock"] = append(touched["stock"], b.read(stock))
			touched["ours"] = append(touched["ours"], b.read(wmsql.NextQuery(sub, b.topic, 1)))
		}
		t.Log(touched)
		const few = 12
		if n := touched["stock"]; n[0] <= few || n[1] <= few { // how many, and how they grow, depends on the plan of the day
			t.Errorf("watermill-sql touched %v blocks", n)
		}
		if n := touched["ours"]; n[0] > few || n[1] > few {
			t.Errorf("ours touched %v blocks", n)
		}
	})
}

// Fact, feature D9: in PostgreSQL a statement that failed spoils the transaction, with the messages behind it, for
// ever, although the failed one was set aside and acked. Row D9 of conformance shows ours.
func TestFactWatermillStandsAfterFailedStatement(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		if !b.isPostgres() {
			t.Skip("there a failed statement spoils nothing else")
		}
		b.publish("bad", "good")
		_, messages := b.stock(time.Minute)
		for times := map[string]int{}; times["bad"] < 5; {
			msg := <-messages
			times[msg.UUID]++
			if err := do(t, msg, map[string]string{"bad": `INSERT INTO nowhere VALUES (1)`, "good": half}[msg.UUID]); err == nil {
				t.Errorf("%s: a statement succeeds", msg.UUID)
			}
			msg.Ack()
		}
		if effects := b.effects(); len(effects) != 0 {
			t.Errorf("effects %v", effects)
		}
	})
}

// Fact: on MySQL a deadlock ends the transaction, and what the victim writes after that survives its rollback.
// TestBatchDeadlock shows that nothing is written on it after that with ours.
func TestFactDeadlockVictimsWritesSurvive(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		if b.isPostgres() {
			t.Skip("there it refuses all others")
		}
		b.exec(`INSERT INTO effects (id, step) VALUES ('1', 'x'), ('2', 'x')`)
		b.exec(`ALTER TABLE effects ADD PRIMARY KEY (id)`)
		update := func(id string) string { return `UPDATE effects SET step = 'y' WHERE id = '` + id + `'` }
		failed := make(chan error, 2)
		met := make(chan struct{}, 2)
		for i, order := range [][2]string{{"1", "2"}, {"2", "1"}} {
			tx, err := b.db.Begin()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tx.Exec(update(order[0])); err != nil {
				t.Fatal(err)
			}
			go func() {
				met <- struct{}{}
				for len(met) < 2 {
					time.Sleep(time.Millisecond)
				}
				if _, err := tx.Exec(update(order[1])); err != nil {
					_, err = tx.Exec(fmt.Sprintf(`INSERT INTO effects (id, step) VALUES ('victim', '%d')`, i))
					if err != nil {
						t.Error(err)
					}
				}
				failed <- tx.Rollback()
			}()
		}
		for range 2 {
			if err := <-failed; err != nil {
				t.Error(err)
			}
		}
		if b.effects()["victim"] == nil {
			t.Error("nothing survived")
		}
	})
}

// Fact, feature D8: metadata that is no map of strings stops the topic, and null is a map that a handler cannot write
// to. Row H3 of conformance shows ours.
func TestFactWatermillStopsAtMetadata(t *testing.T) {
	for _, metadata := range []string{`{"n":1}`, `["a"]`} {
		onEach(t, func(t *testing.T, b *bench) {
			b.insert("null", `'null'`)
			log := &testkit.Log{}
			brief := 10 * time.Millisecond
			sub, err := wsql.NewSubscriber(b.db, wsql.SubscriberConfig{SchemaAdapter: b.stockSchema(), OffsetsAdapter: b.offsets(), PollInterval: brief, RetryInterval: brief}, log)
			if err != nil {
				t.Fatal(err)
			}
			defer sub.Close()
			messages := b.messages(sub)
			msg := <-messages
			if msg.Metadata != nil {
				t.Errorf("null is %v", msg.Metadata)
			}
			msg.Ack()
			b.until("it is acknowledged", func() bool { return b.backlog(b.topic, "") == 0 })
			b.insert("bad", `'`+metadata+`'`)
			b.publish("good")
			b.until("it has failed ten times", func() bool { return strings.Count(fmt.Sprint(log.Errors()), "unmarshal") >= 10 })
			select {
			case msg := <-messages:
				t.Errorf("%q is delivered", msg.UUID)
			default:
			}
		})
	}
}

// Fact, decision 5: ids of more than 36 characters and payloads that are no JSON are refused, and bytes of metadata
// that are not UTF-8 come back as others. TestMessageSurvives shows ours.
func TestFactWatermillLosesBytes(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		pub := b.stockPublisher(b.stockSchema())
		if err := pub.Publish(b.topic, message.NewMessage(strings.Repeat("i", 37), nil)); err == nil {
			t.Error("it takes a long id")
		}
		if err := pub.Publish(b.topic, with("a", message.Metadata{"binary": "\xff"}, nil)); err != nil {
			t.Fatal(err)
		}
		if got := b.take(b.topic, 1)[0].Metadata["binary"]; got != "\uFFFD" {
			t.Errorf("%q", got)
		}
		schema := wsql.SchemaAdapter(wsql.DefaultMySQLSchema{})
		if b.isPostgres() {
			schema = wsql.DefaultPostgreSQLSchema{}
		}
		for _, query := range schema.SchemaInitializingQueries(b.topic + ".json") {
			b.exec(query.Query)
		}
		if err := b.stockPublisher(schema).Publish(b.topic+".json", message.NewMessage("a", []byte("no json"))); err == nil {
			t.Error("it takes any payload")
		}
	})
}

// Fact, feature D9: its publisher publishes although the transaction of the message is rolled back.
// TestPublishWithContext shows ours.
func TestFactWatermillPublishesByItself(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		b.publish("a")
		_, messages := b.stock(time.Minute)
		msg := <-messages
		if err := b.stockPublisher(b.stockSchema()).Publish(b.outs, message.NewMessageWithContext(msg.Context(), "out", nil)); err != nil {
			t.Fatal(err)
		}
		if tx, _ := wsql.TxFromContext(msg.Context()); tx.Rollback() != nil || b.backlogOf(b.outs) != 1 {
			t.Error("it is undone")
		}
	})
}

// Fact: the transaction of watermill-sql's subscriber is found by a key that no other package can set.
func TestFactTxFromContextIsTheirs(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		b.publish("a")
		b.run(b.subscriber(), func(msg *message.Message) ([]*message.Message, error) {
			if _, ok := wsql.TxFromContext(msg.Context()); ok || idempotency.Tx(msg.Context()) == nil {
				t.Error("doc.go says otherwise")
			}
			return b.whole(msg)
		})
		b.account([]string{"a"})
	})
}
