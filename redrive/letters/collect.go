package letters

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/chain/consume"
	"github.com/watermill-spillway/spillway/internal/errs/safecall"
	"github.com/watermill-spillway/spillway/internal/timing/wait"
)

// nackPause is the wait before a message that was not stored is requeued: some subscribers redeliver at once, without
// end.
const nackPause = 50 * time.Millisecond

// Collect adds to the router a handler for each dead-letter topic, named spillway_store_<topic>, that moves its
// messages into the Store. A message is acked when it is durable there, and nacked if it cannot be written. A chain of
// the whole router lets these messages pass. The router closes sub. A wrong argument is an error of Router.Run. So is,
// with wmkafka's subscriber, a consumer group without an offset in a topic of which the Store had letters: they would
// come again, also those that were discarded or purged.
func (s *Store) Collect(sub message.Subscriber, topics ...string) message.RouterPlugin {
	add := consume.Plugin("letters", "spillway_store_", sub, topics, func(topic string, msg *message.Message) error {
		err := s.Publish(topic, msg)
		if err != nil {
			wait.For(msg.Context(), nackPause)
		}
		return err
	})
	return func(router *message.Router) error {
		if err := add(router); err != nil {
			return err
		}
		of, is := sub.(interface {
			Begun(ctx context.Context, topic string) (bool, error)
		})
		if !is {
			return nil
		}
		for _, topic := range topics {
			if err := s.goesOn(topic, of.Begun); err != nil {
				return wrapped(fmt.Sprintf("collect %q", topic), err)
			}
		}
		return nil
	}
}

// goesOn returns an error if the topic would be read again from its beginning. The causes tell whether it was read
// before: they outlive their letters.
func (s *Store) goesOn(topic string, begun func(context.Context, string) (bool, error)) error {
	ctx, cancel := context.WithTimeout(context.Background(), maxWrite)
	defer cancel()
	if err := s.usable(ctx); err != nil {
		return err
	}
	before := false
	err := s.read(ctx, func() {}, func(*sql.Rows) error { before = true; return nil },
		`SELECT 1 FROM spillway_letter_causes WHERE service = ? AND dead_letter_topic = ? LIMIT 1`,
		asBytes(s.service), asBytes(topic))
	if err != nil || !before {
		return err
	}
	has := false
	err = safecall.Call("letters.Begun", func() (err error) { has, err = begun(ctx, topic); return err })
	if err == nil && !has {
		err = errOffsetsGone
	}
	return err
}

var errOffsetsGone = errors.New("the Store had letters of this topic, but the consumer group has no offset in it: its " +
	"offsets are gone, and letters that were discarded or purged would wait again; set them by kafka-consumer-groups.sh " +
	"--reset-offsets: --to-datetime with the time when the group was last read, or --to-earliest to collect all again")
