package main

import (
	"context"
	"strings"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/middleware/stages/delay"
	"github.com/watermill-spillway/spillway/observe"
	"github.com/watermill-spillway/spillway/pubsub/wmsql"
)

// largestOutput is what the table of outputs takes, and refuses what is larger for what it is.
const largestOutput = 64 << 10

// onTables is a site whose broker is its database: effects, key, output, letter and acknowledgement are in one
// transaction.
func onTables(s *site) {
	s.origin = wmsql.Origin
	s.publisher = func() (publisher, error) {
		return wmsql.NewPublisher(context.Background(), s.db,
			wmsql.PublisherConfig{Shared: observe.Shared{Logger: s.logger}})
	}
	s.subscriber = func(group string, _ int) (subscriber, error) {
		return wmsql.NewSubscriber(context.Background(), s.db,
			wmsql.SubscriberConfig{ConsumerGroup: group, Shared: observe.Shared{Logger: s.logger}})
	}
	s.keys = func(ctx context.Context, live subscriber) (idempotency.Store, error) {
		return wmsql.Join(ctx, live.(*wmsql.Subscriber), service)
	}
	s.later = func(ctx context.Context) (*delay.Store, error) {
		return delay.NewStore(ctx, s.db, service)
	}
	quote, room := `"`, 8<<20 // PostgreSQL would take a gigabyte
	if s.Driver == "mysql" {
		quote, room = "`", 16<<20
	}
	s.oversized = func(msg *message.Message, less int) { msg.Payload = make([]byte, room-less) }
	s.refused = func(string) *message.Message {
		return message.NewMessage("", []byte(strings.Repeat("x", largestOutput+1)))
	}

	s.create = func() error {
		pub, err := s.publisher()
		if err != nil {
			return err
		}
		if err := pub.InitializeTopics(append([]string{s.Topic, s.outputs()}, s.deadLetters()...)...); err != nil {
			return err
		}
		_, err = s.db.Exec(`ALTER TABLE ` + quote + `watermill_` + s.outputs() + quote +
			` ADD CHECK (octet_length(payload) <= 65536)`)
		return err
	}
	s.remove = func() error { return nil } // topics go with the database
}
