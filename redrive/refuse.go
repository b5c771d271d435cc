package redrive

import (
	"context"
	"fmt"

	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

const maxRefusedTopics = 20

// countRefused reports the letters that the filter chooses and that may not go to their origin topic. They are not
// touched: another drain may redrive them.
func (d *drain) countRefused(ctx context.Context) (err error) {
	f := d.Filter
	f.NotTopics = append(f.NotTopics[:len(f.NotTopics):len(f.NotTopics)], d.Allow...)
	refused, err := d.store.Inside().CountTopics(ctx, f)
	if err != nil {
		return fmt.Errorf("redrive: count the letters whose topics are not allowed: %w", err)
	}
	for _, n := range refused {
		d.report.Refused += n
	}
	for _, t := range mostFirst(refused, maxRefusedTopics) {
		d.report.refusedTopic(t.Topic, t.Letters)
		logging.RedriveNotAllowed.Write(d.Logger, ErrNotAllowed,
			logging.Fields{logging.Topic: t.Topic, logging.Letters: t.Letters})
	}
	return nil
}

// unreadable releases a letter whose row has an allowed topic and whose metadata do not: it is damaged.
func (d *drain) unreadable(b *batch, l *letters.Letter, topic string) {
	d.release(b, l)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.considered[l.Seq] = struct{}{}
	d.report.Taken--
	d.report.Refused++
	d.report.refusedTopic(topic, 1)
}
