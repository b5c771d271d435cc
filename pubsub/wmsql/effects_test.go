package wmsql_test

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/pubsub/wmsql"
)

// txOf is the transaction of a message's handler.
var txOf = idempotency.Tx

// write writes one of the message's effects in its transaction.
func (b *bench) write(msg *message.Message, step string) error {
	return insert(txOf(msg.Context()), msg.UUID, step)
}

func insert(tx interface {
	Exec(string, ...any) (sql.Result, error)
}, id, step string) error {
	_, err := tx.Exec(`INSERT INTO effects (id, step) VALUES ('` + id + `', '` + step + `')`)
	return err
}

// whole writes both of a message's effects and returns its output.
func (b *bench) whole(msg *message.Message) ([]*message.Message, error) {
	for _, step := range []string{"one", "two"} {
		if err := b.write(msg, step); err != nil {
			return nil, err
		}
	}
	return []*message.Message{message.NewMessage("", []byte(msg.UUID))}, nil
}

// deliveries counts how often a handler saw each message, in which order.
type deliveries struct {
	mu  sync.Mutex
	ids []string
	of  map[string]int
}

func (d *deliveries) add(id string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.of == nil {
		d.of = map[string]int{}
	}
	d.ids = append(d.ids, id)
	d.of[id]++
	return d.of[id]
}

func (d *deliveries) get() map[string]int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.of)
}

func (d *deliveries) String() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return strings.Join(d.ids, " ")
}

// effects returns the steps that were committed, by id.
func (b *bench) effects() map[string][]string {
	b.Helper()
	rows := testkit.Must(b.db.Query(`SELECT id, step FROM effects`))
	defer rows.Close()
	steps := map[string][]string{}
	for rows.Next() {
		var id, step string
		testkit.NoError(b, rows.Scan(&id, &step))
		steps[id] = append(steps[id], step)
	}
	testkit.NoError(b, rows.Err())
	return steps
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
		letter := testkit.Must(poison.Decode(msg))
		letters[letter.Original.UUID] = append(letters[letter.Original.UUID], letter)
	})
	return letters
}

// aside says why a message was set aside, or "" where it was not.
func (b *bench) aside(id string) string {
	b.Helper()
	letters := b.letters()[id]
	testkit.Check(b, len(letters) <= 1, "%d letters of %s", len(letters), id)
	for _, letter := range letters {
		return letter.Failure.Reason
	}
	return ""
}

// each reads a table beside the code under test.
func (b *bench) each(topic string, do func(*message.Message)) {
	b.Helper()
	rows, err := b.db.Query(`SELECT uuid, payload, metadata FROM ` + b.table(topic) +
		b.sql(` ORDER BY "offset"`, " ORDER BY `offset`"))
	if err != nil && (strings.Contains(err.Error(), "42P01") || strings.Contains(err.Error(), "1146")) {
		return // the table is not there yet
	}
	testkit.NoError(b, err)
	defer rows.Close()
	for rows.Next() {
		var id string
		var payload, metadata []byte
		testkit.NoError(b, rows.Scan(&id, &payload, &metadata))
		msg := message.NewMessage(id, payload)
		testkit.NoError(b, json.Unmarshal(metadata, &msg.Metadata))
		do(msg)
	}
	testkit.NoError(b, rows.Err())
}

// backlog counts what a group that reads a topic from its start has before it.
func (b *bench) backlog(topic, group string) int {
	b.Helper()
	sub := b.subscriber(func(c *wmsql.SubscriberConfig) { c.ConsumerGroup = group })
	return testkit.Must(sub.Backlog(b.Context(), topic))
}

// drained waits until nothing is left to consume, as long as it gets less.
func (b *bench) drained() {
	b.Helper()
	for left := b.backlog(b.topic, ""); left > 0; {
		b.until(fmt.Sprintf("fewer than %d are left", left), func() bool { return b.backlog(b.topic, "") < left })
		left = b.backlog(b.topic, "")
	}
}

// handsOver handles what a stopped instance left, and accounts for all.
func (b *bench) handsOver(stop func(), ids ...string) {
	b.Helper()
	stop()
	b.run(b.subscriber(), b.whole)
	b.account(ids)
}

// account waits for the end and counts by id: each message has both of its effects and its output once, or, where it is
// set aside, one letter and nothing else. Nothing else is there.
func (b *bench) account(published []string, aside ...string) {
	b.Helper()
	b.drained()
	effects, outputs, letters := b.effects(), b.outputs(), b.letters()
	for _, id := range published {
		steps := strings.Join(slices.Sorted(slices.Values(effects[id])), " ")
		want := `effects "one two", 1 outputs, 0 letters`
		if slices.Contains(aside, id) {
			want = `effects "", 0 outputs, 1 letters`
		}
		testkit.Equal(b, id, fmt.Sprintf("effects %q, %d outputs, %d letters", steps, outputs[id], len(letters[id])),
			want)
		delete(effects, id)
		delete(outputs, id)
		delete(letters, id)
	}
	testkit.Check(b, len(effects)+len(outputs)+len(letters) == 0,
		"of messages that were not published: effects %v, outputs %v, letters %v", effects, outputs, letters)
}
