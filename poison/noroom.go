package poison

import (
	"errors"
	"sync"
	"time"

	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/outage"
	"github.com/watermill-spillway/spillway/internal/recent"
	"github.com/watermill-spillway/spillway/internal/wait"
)

// errNoRoom is for a message that is larger than what any sink takes. It stays where it is.
var errNoRoom = errors.New("poison: the message is too large for all sinks, even without a letter: raise their limit " +
	"for messages, or give QueueConfig.Fallbacks a sink that takes larger ones, such as a dead-letter store")

const (
	firstNoRoom = 250 * time.Millisecond
	maxNoRoom   = 10 * time.Second
)

// noRoom makes messages that no sink has room for wait before they are requeued, longer each time: some brokers
// deliver a nacked message again at once.
type noRoom struct {
	mu    *sync.Mutex
	waits *recent.Memory[time.Duration]
}

func newNoRoom() noRoom {
	waits := recent.For[time.Duration](10 * time.Minute)
	return noRoom{new(sync.Mutex), &waits}
}

// wait holds c's message for at most half of the time that it may be held.
func (n noRoom) wait(c *chain.Call) {
	n.mu.Lock()
	next := n.waits.Note(recent.Of(c), time.Now())
	*next = min(max(2**next, firstNoRoom), maxNoRoom)
	pause := *next
	n.mu.Unlock()
	wait.For(c.WaitContext(), min(pause, outage.Rest(c.WaitContext(), 0, c.Held())/2))
}
