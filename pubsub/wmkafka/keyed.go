package wmkafka

import (
	"context"
	"fmt"

	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/internal/order/lanes"
	"github.com/watermill-spillway/spillway/internal/timing/wait"
)

// knowsKey finds the key of the message. While SubscriberConfig.Key panics it waits: without a key the message would
// overtake others. It reports false if ctx ends.
func (d *laned) knowsKey(ctx context.Context) bool {
	of := d.sub.config.Key
	if of == nil {
		d.key = d.of.record.Key
		return true
	}
	for {
		key, err := lanes.KeyFrom(of, d.msg)
		if err == nil {
			if key != "" {
				d.key = []byte(key)
			}
			return true
		}
		logging.KeyPanicked.Write(d.sub.config.Logger, fmt.Errorf("wmkafka: %w", err),
			logging.Fields{logging.Topic: d.sub.topic,
				logging.Partition: d.of.record.Partition, logging.MessageID: d.msg.UUID})
		if !wait.For(ctx, d.pause()) {
			return false
		}
	}
}
