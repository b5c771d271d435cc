package wmamqp

import "github.com/watermill-spillway/spillway/internal/timing/wait"

// adapt fetches no more than one message while the handler's downstream is away. What was fetched before goes back to
// the broker, for other instances: it would wait here until the broker closes the channel. When as many messages in a
// row were acked as are fetched by default, as many are fetched again.
func (c *consumer) adapt() {
	whole := c.sub.config.AMQP.Consume.Qos.PrefetchCount
	switch {
	case c.sub.ctx.Err() != nil:
	case c.returnAll || c.valve.IsShut():
		c.change(1)
	case c.prefetch < whole && c.acks >= whole:
		c.change(whole)
	}
}

// change requeues all that was fetched, and consumes with another prefetch when the valve is open.
func (c *consumer) change(prefetch int) {
	c.prefetch, c.acks, c.nacks, c.returnAll = prefetch, 0, 0, false
	c.placed.Wait() // what is being placed would come again
	c.end()
	for c.valve.Wait(c.sub.ctx) {
		err := c.begin()
		if err == nil || c.of.conn.Closed() { // by its owner: run ends
			return
		}
		c.notResumed(err)
		if !wait.For(c.sub.ctx, beginAgain) {
			return
		}
	}
}
