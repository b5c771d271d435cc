package wmsql_test

import (
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/hold/placing"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/pubsub/wmsql"
)

// Feature D10: a message that is to be placed first is committed before the next one of its batch is delivered.
func TestBatchEndsWithFirst(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		ids := []string{"a", "b", "c"}
		b.publish(ids...)
		left := map[string]int{"a": 3, "b": 2, "c": 2}
		b.run(b.subscriber(oneBatch), func(msg *message.Message) ([]*message.Message, error) {
			testkit.Equal(t, "not committed in the handler of "+msg.UUID, b.backlog(b.topic, ""), left[msg.UUID])
			if msg.UUID == "a" {
				placing.First(msg.Context())
			}
			return b.whole(msg)
		})
		b.account(ids)
	})
}

// Feature O5: an outage of the database is one Error line when it begins, and one Info line when it ends.
func TestConsumeFailedLines(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		through, proxy := b.behind()
		log := &testkit.Log{}
		lines := func(level watermill.LogLevel, event string) (n int) {
			for _, line := range log.Lines(level, "") {
				if line.Fields["event"] == event {
					n++
				}
			}
			return n
		}
		through.run(through.subscriber(func(c *wmsql.SubscriberConfig) {
			c.Logger, *wmsql.NackBackoff(c), *wmsql.MaxNackBackoff(c) = log, time.Millisecond, 10*time.Millisecond
		}), through.whole)
		b.publish("a")
		b.until("the first message is handled", func() bool { return b.backlog(b.topic, "") == 0 })
		proxy.Cut()
		b.until("the outage has a line", func() bool { return lines(watermill.ErrorLogLevel, "consume_failed") > 0 })
		tried := proxy.Accepted()
		b.until("it is tried again and again", func() bool { return proxy.Accepted() > tried+20 })
		proxy.Heal()
		b.publish("b")
		b.account([]string{"a", "b"})
		b.until("the end has a line", func() bool { return lines(watermill.InfoLogLevel, "consume_continued") > 0 })
		testkit.Equal(t, "lines of one outage", lines(watermill.ErrorLogLevel, "consume_failed"), 1)
	})
}
