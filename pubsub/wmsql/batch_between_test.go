package wmsql_test

import (
	"fmt"
	"maps"
	"sync"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/pubsub/wmsql"
)

// Two handlers of two topics that lock the same rows in opposite orders meet in deadlocks, again and again. In the end
// everything has happened once.
func TestBatchDeadlockBetween(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		b.exec(`CREATE TABLE accounts (id INT PRIMARY KEY, n INT NOT NULL)`)
		b.exec(`INSERT INTO accounts VALUES (1, 0), (2, 0)`)
		var deadlocks deliveries
		var meeting sync.WaitGroup // of the first of each side, each with one row
		meeting.Add(2)
		both := []*bench{b, b.beside()}
		want := map[string]int{}
		for side, b := range both { // all before anybody begins: on PostgreSQL a handler's transaction holds up what comes later
			for i := range 6 {
				want[fmt.Sprintf("%d-%d", side, i)] = 1
				b.publish(fmt.Sprintf("%d-%d", side, i))
			}
		}
		for side, b := range both {
			rows, first := [][]string{{"1", "2"}, {"2", "1"}}[side], true
			b.run(b.subscriber(func(c *wmsql.SubscriberConfig) { *wmsql.MaxDeliveries(c) = 1 }), func(msg *message.Message) ([]*message.Message, error) {
				if b.isPostgres() {
					if _, err := txOf(msg.Context()).Exec(`SET LOCAL deadlock_timeout = '50ms'`); err != nil {
						return nil, err
					}
				}
				for i, row := range rows {
					if i == 1 && first {
						first = false
						meeting.Done()
						meeting.Wait()
					}
					if _, err := txOf(msg.Context()).Exec(`UPDATE accounts SET n = n + 1 WHERE id = ` + row); err != nil {
						deadlocks.add("met")
						return nil, classify.Permanent(err)
					}
				}
				return []*message.Message{message.NewMessage("", []byte(msg.UUID))}, b.write(msg, "one")
			})
		}
		outputs, effects := map[string]int{}, map[string]int{}
		for _, b := range both {
			b.drained()
			maps.Copy(outputs, b.outputs())
			if letters := b.letters(); len(letters) > 0 {
				t.Errorf("letters %v", letters)
			}
		}
		for id, steps := range b.effects() {
			effects[id] = len(steps)
		}
		var n int
		err := b.db.QueryRow(`SELECT sum(n) FROM accounts`).Scan(&n)
		if !maps.Equal(outputs, want) || !maps.Equal(effects, want) || n != 24 || err != nil {
			t.Errorf("outputs %v, effects %v, %d updates, %v", outputs, effects, n, err)
		}
		if t.Logf("%d deadlocks", deadlocks.get()["met"]); deadlocks.get()["met"] == 0 {
			t.Error("there was no deadlock")
		}
	})
}
