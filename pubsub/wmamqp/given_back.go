package wmamqp

import (
	"sync"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"github.com/watermill-spillway/spillway/internal/recent"
)

// remembered is how long the times are remembered that a message was given back. It is more than any MaxHold under the broker's
// consumer_timeout.
const remembered = time.Hour

// givenBack remembers how often this process gave back messages of a queue itself. The process lives, so no message crashed it then.
type givenBack struct {
	mu sync.Mutex
	of recent.Memory[int]
}

func newGivenBack() givenBack { return givenBack{of: recent.For[int](remembered)} }

// add notes that a message is given back. A message without an id is not remembered.
func (g *givenBack) add(queue, id string) {
	if id == "" {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	*g.of.Note(recent.Named(queue, id), time.Now())++
}

// times returns how often a message was given back.
func (g *givenBack) times(queue, id string, d *amqp091.Delivery) int {
	if !d.Redelivered {
		return 0
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if n := g.of.Get(recent.Named(queue, id)); n != nil {
		return *n
	}
	return 0
}

func (g *givenBack) forget(queue, id string, d *amqp091.Delivery) {
	if !d.Redelivered {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.of.Forget(recent.Named(queue, id))
}
