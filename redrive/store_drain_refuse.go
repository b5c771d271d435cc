package redrive

import (
	"context"
	"database/sql"
	"fmt"
)

const maxRefusedTopics = 20

// refuse reports the letters that the filter chooses and that may not go where they came from. They are not touched: a
// letter that one drain may not bring back is another one's.
func (d *drain) refuse(ctx context.Context) error {
	f := d.config.Filter
	f.refused = d.allow
	w := d.store.where(f)
	var topics []RefusedTopic
	all := 0
	err := d.store.read(ctx, func() { topics, all = nil, 0 }, func(rows *sql.Rows) error {
		var topic []byte
		var n int
		if err := rows.Scan(&topic, &n, &all); err != nil {
			return err
		}
		topics = append(topics, RefusedTopic{string(topic), n})
		return nil
	}, `SELECT origin_topic, COUNT(*) AS letters, SUM(COUNT(*)) OVER () FROM spillway_dead_letters`+w.String()+`
GROUP BY origin_topic ORDER BY letters DESC, origin_topic LIMIT ?`, append(w.args, maxRefusedTopics)...)
	if err != nil {
		return fmt.Errorf("redrive: count the dead letters whose topics are not allowed: %w", err)
	}
	d.report.Refused, d.report.RefusedTopics = all, topics
	for _, t := range topics {
		d.logger.Error("Letters are not redriven, and wait", ErrNotAllowed, map[string]any{"topic": logged(t.Topic), "letters": t.Letters})
	}
	return nil
}

// unreadable releases a letter whose row names an allowed topic and whose metadata do not: it is damaged.
func (d *drain) unreadable(t Taken, topic string) {
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
		d.report.RefusedTopics = append(d.report.RefusedTopics, RefusedTopic{topic, 1})
	}
}
