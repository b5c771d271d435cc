package wmamqp

import (
	"context"
	"sync"
	"time"

	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/internal/timing"
)

// beginAgain is the wait before another attempt to consume, when the broker refused one.
const beginAgain = time.Second

// resuming is a subscription whose consumers could not begin again. The log has one line when that begins, and one when
// it is over.
type resuming struct {
	mu      sync.Mutex
	failing int // consumers
	since   time.Time
}

// notResumed logs a failed attempt of the consumer to begin again.
func (c *consumer) notResumed(err error) {
	if c.failing {
		logging.ConsumeStillUnavailable.Write(c.sub.config.Logger, err,
			logging.Fields{logging.Queue: c.sub.queue, logging.Wait: beginAgain})
		return
	}
	c.failing = true
	r := &c.sub.resuming
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failing++; r.failing == 1 {
		r.since = time.Now()
		logging.ConsumeNotResumed.Write(c.sub.config.Logger, err,
			logging.Fields{logging.Queue: c.sub.queue, logging.Wait: beginAgain})
	}
}

// resumed notes that the consumer has begun.
func (c *consumer) resumed() {
	if !c.failing {
		return
	}
	c.failing = false
	r := &c.sub.resuming
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failing--; r.failing == 0 {
		logging.ConsumeResumed.Write(c.sub.config.Logger, nil,
			logging.Fields{logging.Queue: c.sub.queue, "lasted": time.Since(r.since).Round(time.Millisecond).String()})
	}
}

// consumersLook is how often the broker is asked whether it has consumers of the queue.
const consumersLook = 10 * time.Second

// watch begins again to consume when the broker has lost the consumers, and said nothing: a quorum queue can do so when
// nodes of its cluster hang or are cut off, and then come back. The channels stay open, and nothing comes. Two answers
// in a row must say it, because the first can be of a consumer that just begins.
func (s *subscription) watch(ctx context.Context, conn *connection) {
	var none int
	for timing.Wait(ctx, s.config.consumersLook) {
		if consumers, err := consumersOf(conn, s.queue); err != nil || consumers > 0 {
			none = 0
			continue
		}
		if none++; none < 2 {
			continue
		}
		none = 0
		logging.ConsumersVanished.Write(s.config.Logger, nil, logging.Fields{logging.Queue: s.queue})
		var closing sync.WaitGroup
		for _, c := range s.consumers {
			closing.Go(func() { _ = c.watched.Load().Close() })
		}
		closing.Wait()
	}
}

// consumersOf asks the broker how many consumers a queue has.
func consumersOf(conn *connection, queue string) (int, error) {
	open, err := conn.open()
	if err != nil {
		return 0, err
	}
	channel, err := open.Channel()
	if err != nil {
		return 0, err
	}
	found, err := channel.QueueDeclarePassive(queue, false, false, false, false, nil)
	if err != nil { // which closes the channel
		return 0, err
	}
	return found.Consumers, channel.Close()
}
