package wmsql_test

import (
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/database/mysql/mysqltest"
	"github.com/watermill-spillway/spillway/pubsub/wmsql"
)

// stepping is a bench whose publishers' numbers are step apart, as on a server or a node of a cluster with
// auto_increment_increment above 1.
func stepping(t *testing.T, step, offset int) (b *bench, with func(step, offset int) *bench) {
	dsn := mysqltest.Database(t)
	open := func(step, offset int) func(testing.TB) *sql.DB {
		own := mysqltest.With(dsn, fmt.Sprintf("auto_increment_increment=%d&auto_increment_offset=%d", step, offset))
		return func(t testing.TB) *sql.DB { return mysqltest.Open(t, own) }
	}
	b = newBench(t, open(step, offset))
	return b, func(step, offset int) *bench {
		other := *b
		other.db = open(step, offset)(t)
		other.pub = (&other).publisher()
		return &other
	}
}

// With auto_increment_increment above 1 there is a gap before every number. All the gaps that are seen at once are
// waited for once: where each batch waited, these messages took 100 times GapWait.
func TestStep(t *testing.T) {
	b, _ := stepping(t, 3, 2)
	const n = 1000
	var batch []*message.Message
	for i := range n {
		batch = append(batch, message.NewMessage(fmt.Sprint(i), nil))
	}
	if err := b.pub.Publish(b.topic, batch...); err != nil {
		t.Fatal(err)
	}
	ids := b.consume(func(c *wmsql.SubscriberConfig) { c.GapWait = 2 * time.Second })
	deadline := time.After(patience)
	for i := range n {
		select {
		case got := <-ids:
			if got != fmt.Sprint(i) {
				t.Fatalf("%s came, want %d", got, i)
			}
		case <-deadline:
			t.Fatalf("only %d came", i)
		}
	}
}

// Feature P1: publishers on several nodes have steps of the same width and begin at different numbers. One that commits
// late is waited for, however many messages of the other come meanwhile.
func TestStepOfTwo(t *testing.T) {
	one, with := stepping(t, 2, 1)
	two := with(2, 2)
	ids := one.consume(func(c *wmsql.SubscriberConfig) { c.GapWait = 20 * time.Millisecond })
	one.publish("a")
	one.comes(ids, "a")
	var want []string
	for i := range 15 { // more than a batch
		late := two.enter(fmt.Sprint("late-", i))
		one.publish(fmt.Sprint("b-", i), fmt.Sprint("c-", i))
		one.still(ids, 50*time.Millisecond)
		if err := late.Commit(); err != nil {
			t.Fatal(err)
		}
		want = []string{fmt.Sprint("late-", i), fmt.Sprint("b-", i), fmt.Sprint("c-", i)}
		one.comes(ids, want...)
	}
}
