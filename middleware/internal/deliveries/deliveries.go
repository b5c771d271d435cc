// Package deliveries has what a crashlimit.Limit and its Store say to each other: which processes run, and which
// deliveries they have not finished. It is a package of its own so that a Limit compiles no database.
package deliveries

import (
	"context"
	"math"
	"time"
)

// Store keeps processes and the marks of their deliveries for a service. Each method but Within and Column is one
// statement, and ends with its context.
type Store interface {
	// Within reports whether ctx is inside a claim that keeps all others out of the store.
	Within(ctx context.Context) bool
	// Column returns the form in which a name stands in the store: short and readable. No two names have the same.
	Column(name string) string

	// Register makes a process known. It can be repeated if its answer was lost.
	Register(ctx context.Context, p Process) error
	// Beat shows that a process lives, and reports whether it is still registered.
	Beat(ctx context.Context, id string) (there bool, err error)
	// Others returns all processes of the service but the one with this id.
	Others(ctx context.Context, id string) ([]Process, error)
	// Lose marks a process as lost, and reports whether it did: not if it has beaten since, or was lost before.
	Lose(ctx context.Context, id string, beats int64) (lost bool, err error)
	// Forget removes a process if it is lost.
	Forget(ctx context.Context, id string) error
	// SignOff removes a process.
	SignOff(ctx context.Context, id string) error

	// Enter leaves the mark of a delivery, and reports whether it did: not if the message has a delivery of that
	// number.
	Enter(ctx context.Context, of Key, m Mark) (entered bool, err error)
	// Marks returns what deliveries of a message left, in their order, with their processes at the same moment.
	Marks(ctx context.Context, of Key) ([]Found, error)
	// Clear removes the mark that a process wrote or, without a process, those of all deliveries up to a number.
	Clear(ctx context.Context, of Key, m Mark) error
	// Leave removes all marks that a process wrote.
	Leave(ctx context.Context, process string) error
	// Sweep removes the marks older than age, and those of messages whose dead letters are older than placed.
	Sweep(ctx context.Context, age, placed time.Duration) error
}

// Process is a process of the service.
type Process struct {
	ID, Node string        // Others leaves Node out
	Interval time.Duration // between heartbeats
	Beats    int64
	Lost     bool          // another process found that it stopped
	LostFor  time.Duration // by the database's clock
}

// Key names a message for one consumer, in the form in which it stands in columns.
type Key struct {
	Consumer, ID string
	// Redrives is how often the message was redriven, or less than 0 for a parked one that a person released, another
	// number for each release. A message that a person brought back starts anew.
	Redrives int64
	// Content says that only what the message holds names it: another message may have the same key.
	Content bool
}

// Mark is what one delivery left.
type Mark struct {
	// Delivery is 1 for the first one that left a mark, 2 for the next. It is 0 for the dead letter of the message.
	Delivery int
	// Process is the id of the process that wrote it, or of a dead letter what names its content.
	Process string
}

// Found is a mark, and what became of its process.
type Found struct {
	Mark
	Interval time.Duration // between heartbeats
	Beats    int64
	// Ended says that the process was found to have stopped, or is not there. One that signs off takes its marks along.
	Ended bool
}

// All stands for the marks of all deliveries.
var All = Mark{Delivery: math.MaxInt32}
