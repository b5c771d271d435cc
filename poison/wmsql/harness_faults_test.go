package wmsql_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/mysql/mysqltest"
	"github.com/watermill-spillway/spillway/internal/postgres/postgrestest"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/poison/wmsql"
)

// seeded is a source of random moments. Its seed is in the test's log; SPILLWAY_SEED repeats it.
func seeded(t testing.TB) *rand.Rand {
	seed := uint64(time.Now().UnixNano())
	if given, err := strconv.ParseUint(os.Getenv("SPILLWAY_SEED"), 10, 64); err == nil {
		seed = given
	}
	t.Logf("SPILLWAY_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, seed))
}

// chaos multiplies how often campaigns strike: SPILLWAY_CHAOS, 1 by default.
func chaos() int {
	n, err := strconv.Atoi(os.Getenv("SPILLWAY_CHAOS"))
	if err != nil {
		return 1
	}
	return max(n, 1)
}

func (b *bench) isPostgres() bool {
	_, ok := b.db.Driver().(*stdlib.Driver)
	return ok
}

// sql chooses a statement by database.
func (b *bench) sql(postgres, mysql string) string {
	if b.isPostgres() {
		return postgres
	}
	return mysql
}

func (b *bench) exec(query string) {
	b.Helper()
	if _, err := b.db.Exec(query); err != nil {
		b.Fatal(err)
	}
}

// table names the table of a topic.
func (b *bench) table(topic string) string {
	return b.sql(wsql.DefaultPostgreSQLSchema{}.MessagesTable(topic), wsql.DefaultMySQLSchema{}.MessagesTable(topic))
}

// beside is a bench on another topic of the same database.
func (b *bench) beside() *bench {
	b.Helper()
	other := *b
	other.topic, other.outs = b.topic+".x", b.topic+".x.out"
	if err := b.subscriber(func(c *wmsql.SubscriberConfig) { c.InitializeSchema = true }).SubscribeInitialize(other.topic); err != nil {
		b.Fatal(err)
	}
	if err := b.pub.InitializeTopics(other.outs); err != nil {
		b.Fatal(err)
	}
	return &other
}

// oneBatch lets whatever is there be one batch, whatever the time it takes.
func oneBatch(c *wmsql.SubscriberConfig) { c.BatchTime = time.Minute }

// whole writes both of a message's effects and returns its output.
func (b *bench) whole(msg *message.Message) ([]*message.Message, error) {
	for _, step := range []string{"one", "two"} {
		if err := b.write(msg, step); err != nil {
			return nil, err
		}
	}
	return []*message.Message{message.NewMessage("", []byte(msg.UUID))}, nil
}

// outputs counts what was published to the topic of outputs, by the id of its source.
func (b *bench) outputs() map[string]int {
	b.Helper()
	counts := map[string]int{}
	b.each(b.outs, func(msg *message.Message) { counts[string(msg.Payload)]++ })
	return counts
}

// letters returns the dead letters, by id.
func (b *bench) letters() map[string][]poison.Letter {
	b.Helper()
	letters := map[string][]poison.Letter{}
	b.each(b.topic+".dlq", func(msg *message.Message) {
		letter, err := poison.Decode(msg)
		if err != nil {
			b.Fatal(err)
		}
		letters[letter.Original.UUID] = append(letters[letter.Original.UUID], letter)
	})
	return letters
}

// each reads a table beside the code under test.
func (b *bench) each(topic string, do func(*message.Message)) {
	b.Helper()
	rows, err := b.db.Query(`SELECT uuid, payload, metadata FROM ` + b.table(topic))
	if err != nil && (strings.Contains(err.Error(), "42P01") || strings.Contains(err.Error(), "1146")) {
		return // nobody has made it yet
	}
	if err != nil {
		b.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var id string
		var payload, metadata []byte
		if err := rows.Scan(&id, &payload, &metadata); err != nil {
			b.Fatal(err)
		}
		msg := message.NewMessage(id, payload)
		if err := json.Unmarshal(metadata, &msg.Metadata); err != nil {
			b.Fatal(err)
		}
		do(msg)
	}
	if err := rows.Err(); err != nil {
		b.Fatal(err)
	}
}

// drained waits until nothing is left to consume.
func (b *bench) drained() {
	b.Helper()
	b.until("all are acknowledged", func() bool { return b.backlog(b.topic, "") == 0 })
}

// account waits for the end and counts by id: each message has both of its effects and its output once, or, where it is
// set aside, one letter and nothing else. Nothing else is there.
func (b *bench) account(published []string, aside ...string) {
	b.Helper()
	b.drained()
	effects, outputs, letters := b.effects(), b.outputs(), b.letters()
	for _, id := range published {
		steps := strings.Join(slices.Sorted(slices.Values(effects[id])), " ")
		found := fmt.Sprintf("effects %q, %d outputs, %d letters", steps, outputs[id], len(letters[id]))
		want := `effects "one two", 1 outputs, 0 letters`
		if slices.Contains(aside, id) {
			want = `effects "", 0 outputs, 1 letters`
		}
		if found != want {
			b.Errorf("%s: %s, want %s", id, found, want)
		}
		delete(effects, id)
		delete(outputs, id)
		delete(letters, id)
	}
	if len(effects)+len(outputs)+len(letters) > 0 {
		b.Errorf("of messages that nobody published: effects %v, outputs %v, letters %v", effects, outputs, letters)
	}
}

// deliveries counts how often a handler saw each message.
type deliveries struct {
	mu sync.Mutex
	of map[string]int
}

func (d *deliveries) add(id string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.of == nil {
		d.of = map[string]int{}
	}
	d.of[id]++
	return d.of[id]
}

func (d *deliveries) get() map[string]int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.of)
}

// held tells whether a transaction holds the position of the group without a name.
func (b *bench) held() bool {
	b.Helper()
	table := b.sql(wsql.DefaultPostgreSQLOffsetsAdapter{}.MessagesOffsetsTable(b.topic), wsql.DefaultMySQLOffsetsAdapter{}.MessagesOffsetsTable(b.topic))
	tx, err := b.db.Begin()
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	var group string
	err = tx.QueryRow(`SELECT consumer_group FROM ` + table + ` WHERE consumer_group = '' FOR UPDATE NOWAIT`).Scan(&group)
	if err != nil && !strings.Contains(err.Error(), "could not obtain lock") && !strings.Contains(err.Error(), "1205") {
		b.Fatal(err)
	}
	return err != nil
}

// once lets a failed attempt be the last, and publishes nothing twice.
func once(c *spillway.Config) { c.Attempts, c.Queue.PublishAttempts = 1, 1 }

// sleep runs a statement that takes seconds.
func (b *bench) sleep(seconds string) string {
	return b.sql(`SELECT pg_sleep(`+seconds+`)`, `DO SLEEP(`+seconds+`)`)
}

// txOf is the transaction of a message's handler.
var txOf = idempotency.Tx

// cutOff ends the connection of a message's transaction on the server, and returns what the next statement meets.
func (b *bench) cutOff(msg *message.Message) error {
	b.Helper()
	tx := txOf(msg.Context())
	var id int64
	if err := tx.QueryRow(b.sql(`SELECT pg_backend_pid()`, `SELECT CONNECTION_ID()`)).Scan(&id); err != nil {
		return err
	}
	if b.isPostgres() {
		postgrestest.Kill(b, b.db, int(id))
	} else {
		mysqltest.Kill(b, b.db, id)
	}
	_, err := tx.Exec(`DELETE FROM effects`)
	if err == nil {
		b.Error("the connection lives")
	}
	return err
}
