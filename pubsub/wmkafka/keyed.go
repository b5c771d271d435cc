package wmkafka

import (
	"context"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/internal/wait"
)

// knowsKey finds the key of the message. While SubscriberConfig.Key panics it waits: without a key the message would
// overtake others. It reports false if ctx ends.
func (d *delivery) knowsKey(ctx context.Context) bool {
	of := d.sub.config.Key
	if of == nil {
		d.key = d.of.record.Key
		return true
	}
	for {
		key, err := keyFrom(of, d.msg)
		if err == nil {
			if key != "" {
				d.key = []byte(key)
			}
			return true
		}
		logging.KeyPanicked.Write(d.sub.config.Logger, err, logging.Fields{logging.Topic: d.sub.topic,
			logging.Partition: d.of.record.Partition, logging.MessageID: d.msg.UUID})
		if !wait.For(ctx, d.pause()) {
			return false
		}
	}
}

func keyFrom(of func(*message.Message) string, msg *message.Message) (key string, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("wmkafka: SubscriberConfig.Key panicked with %v: it must return the key of every message, or \"\" for "+
				"one without a key", r)
		}
	}()
	return of(msg), nil
}
