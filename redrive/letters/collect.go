package letters

import (
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/chain/consume"
	"github.com/watermill-spillway/spillway/internal/timing/wait"
)

// nackPause is the wait before a message that was not stored is requeued: some subscribers redeliver at once, without
// end.
const nackPause = 50 * time.Millisecond

// Collect adds to the router a handler for each dead-letter topic, named spillway_store_<topic>, that moves its
// messages into the Store. A message is acked when it is durable there, and nacked if it cannot be written. A chain of
// the whole router lets these messages pass. The router closes sub. A wrong argument is an error of Router.Run.
func (s *Store) Collect(sub message.Subscriber, topics ...string) message.RouterPlugin {
	return consume.Plugin("letters", "spillway_store_", sub, topics, func(topic string, msg *message.Message) error {
		err := s.Publish(topic, msg)
		if err != nil {
			wait.For(msg.Context(), nackPause)
		}
		return err
	})
}
