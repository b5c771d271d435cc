package inside

import (
	"time"

	"github.com/watermill-spillway/spillway/internal/delayed"
)

// Stages is the inside of stages.Stages. The first two methods can be called if the *Stages is nil.
type Stages interface {
	// Store returns the store of the Config. It is nil if messages wait in topics.
	Store() *delayed.Store
	// HandlerOf returns the handler of a topic that waiting messages come back from, and the handler's live topic. It
	// reports false if no handler of this process has the topic. Of handlers that share the topic, it returns the one
	// whose name comes first.
	HandlerOf(stageTopic string) (handler, topic string, ok bool)
	// Total returns how long a message can wait in all stages together, without longer waits that errors ask for.
	Total() time.Duration
}
