package placing

import (
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"
)

// Chains counts the chains that are at work on the message of a delivery, which embeds it to be Laned. The zero value
// is ready.
type Chains struct {
	mu       sync.Mutex
	msg      *message.Message
	depth    int
	returned chan struct{} // closed when depth is 0 again; nil if nothing waits for it
}

// Deliver is called before msg is delivered. Chains of other messages, such as copies, do not count.
func (c *Chains) Deliver(msg *message.Message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.msg = msg
}

// Enter is called when a chain begins with msg.
func (c *Chains) Enter(msg *message.Message) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.msg != msg {
		return false
	}
	c.depth++
	return true
}

// Return is called when the chain has returned.
func (c *Chains) Return() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.depth--; c.depth == 0 && c.returned != nil {
		close(c.returned)
		c.returned = nil
	}
}

var none = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// Returned is closed when no chain is at work on the message. A handler may ack or nack before it has returned.
func (c *Chains) Returned() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.depth == 0 {
		return none
	}
	if c.returned == nil {
		c.returned = make(chan struct{})
	}
	return c.returned
}
