package wmsql_test

import (
	"maps"
	"strings"
	"sync"
	"time"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/database/mysql/mysqltest"
	"github.com/watermill-spillway/spillway/internal/database/postgres/postgrestest"
	"github.com/watermill-spillway/spillway/pubsub/wmsql"
)

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
	if err := b.subscriber().SubscribeInitialize(other.topic); err != nil {
		b.Fatal(err)
	}
	if err := b.pub.InitializeTopics(other.outs); err != nil {
		b.Fatal(err)
	}
	return &other
}

// oneBatch lets whatever is there be one batch, whatever the time it takes.
func oneBatch(c *wmsql.SubscriberConfig) { *wmsql.BatchTime(c) = time.Minute }

// whole writes both of a message's effects and returns its output.
func (b *bench) whole(msg *message.Message) ([]*message.Message, error) {
	for _, step := range []string{"one", "two"} {
		if err := b.write(msg, step); err != nil {
			return nil, err
		}
	}
	return []*message.Message{message.NewMessage("", []byte(msg.UUID))}, nil
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

// held reports whether a transaction holds the position of the group without a name.
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
func once(c *spillway.Config) { c.Retry.Attempts, c.Queue.PublishAttempts = 1, 1 }

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
