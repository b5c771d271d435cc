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
	f.NotTopics, f.Limit = append(f.NotTopics[:len(f.NotTopics):len(f.NotTopics)], d.Allow...), maxRefusedTopics
	d.report.RefusedTopics, d.report.Refused, err = d.store.CountTopics(ctx, f)
	if err != nil {
		return fmt.Errorf("redrive: count the letters whose topics are not allowed: %w", err)
	}
	for _, t := range d.report.RefusedTopics {
		logging.RedriveNotAllowed.Write(d.Logger, ErrNotAllowed,
			logging.Fields{logging.Topic: t.Topic, logging.Letters: t.Letters})
	}
	return nil
}

// unreadable releases a letter whose row has an allowed topic and whose metadata do not: it is damaged.
func (d *drain) unreadable(t letters.Taken, topic string) {
	d.release(t)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.considered[t.Seq] = struct{}{}
	d.report.Taken--
	d.report.Refused++
	for i := range d.report.RefusedTopics {
		if d.report.RefusedTopics[i].Topic == topic {
			d.report.RefusedTopics[i].Letters++
			return
		}
	}
	if len(d.report.RefusedTopics) < maxRefusedTopics {
		d.report.RefusedTopics = append(d.report.RefusedTopics, letters.TopicCount{Topic: topic, Letters: 1})
	}
}
