// Package inside has the data of the hidden methods of letters.Store and campaigns.Campaigns: claims, reports and what
// pages show. See package hidden.
package inside

import (
	"context"
	"time"

	"github.com/watermill-spillway/spillway/internal/hidden"
	"github.com/watermill-spillway/spillway/poison"
)

// Poison has the hidden methods of a poison.Queue that need no Queue.
var Poison = hidden.Of((*poison.Queue)(nil))

// Group is what a subscriber hides whose consumer group's offsets can be lost, as that of wmkafka.
type Group interface {
	// Begun reports whether the group has an offset in topic, or topic has no message. If it has not, a subscription
	// would begin with the oldest message. So redrive.DrainTopic and letters.Store.Collect ask: offsets are gone if the
	// group is deleted, and seven days after a process was killed that was its last member.
	Begun(ctx context.Context, topic string) (bool, error)
}

// Claim is letters under one lease.
type Claim[Letter any] struct {
	// Token proves the lease.
	Token string
	// Until is when others may take the letters, by this process's clock and a little early. The lease itself goes by
	// the database's clock. A letter stays with its holder until another takes it.
	Until   time.Time
	Letters []*Letter
}

// Of is the claim of some of the letters.
func (c Claim[Letter]) Of(some ...*Letter) Claim[Letter] {
	c.Letters = some
	return c
}

// Outcome is what became of the letters of a redrive.
type Outcome struct {
	// Redriven is the number of letters that were published, and not heard of since.
	Redriven int
	// Succeeded is the number of letters whose messages were handled.
	Succeeded int
	// FailedAgain is the number of letters whose messages became dead letters again.
	FailedAgain int
}

// Arrivals is how often letters of a cause arrived in each minute of the last hour.
type Arrivals struct {
	// Cause is the hash of the cause.
	Cause string
	// From is the begin of the first minute.
	From time.Time
	// PerMinute are the numbers of arrivals, the oldest minute first. The last minute is the current one: it is not
	// over yet.
	PerMinute [60]int
}

// WrongNumbers are those of a cause whose letters were deleted by hand, or came out of a backup without their numbers.
type WrongNumbers struct {
	Cause string
	// Letters are there, and so many were Counted.
	Letters, Counted int
}

// KeyCount is the number of letters that are sealed with a key.
type KeyCount struct {
	// Key is the id of the key. It is empty for letters that are not sealed, and ? for sealed letters that do not say.
	Key     string `json:"key"`
	Letters int    `json:"letters"`
}

// Resealed is what Reseal did, also if it ended with an error.
type Resealed struct {
	// Key is the id of the current key.
	Key string `json:"key"`
	// Resealed counts the letters that have the current key now and had another one, or none.
	Resealed int `json:"resealed"`
	// Closed counts the letters that do not open. They stay as they are.
	Closed int `json:"closed"`
	// Why are the errors of the first Closed letters, at most 20. Each names the letter and its key.
	Why []string `json:"why,omitempty"`
}

// EraseOptions are options of Erase.
type EraseOptions struct {
	// DryRun counts the letters, and erases none.
	DryRun bool
	// ForgetIDs replaces the ids of the messages by hashes, in the letters and in their events, for ids that name a
	// person. The hash of an id that can be guessed can be guessed too. Default: ids stay, so that the record can be
	// searched by them.
	ForgetIDs bool
	// Texts must not stay in the reasons and details of the events of the letters. The word erased takes their place.
	// Texts of fewer than 4 bytes are replaced only if they are all of it. Default: none.
	Texts []string
	// Before is called with at most 200 letters before they are erased, outside of any transaction: their Seqs and the
	// ids of their messages. Letters that have a lease are among them. An error ends Erase. Default: none.
	Before func(ctx context.Context, seqs []int64, messageIDs []string) error
	// Progress is called after each transaction with what was done so far. Default: none.
	Progress func(done Erased)
}

// Erased is what Erase did.
type Erased struct {
	// Letters is the number of letters that were erased.
	Letters int
	// InHand is the number of letters that stay because they have a lease, or another transaction was writing them.
	// Erase them by another call when the lease is over.
	InHand int
}

// EventKinds are the kinds of letters.Event: the constants of letters.EventKind.
var EventKinds = []string{"stored", "arrived_again", "selected", "edited", "waiting", "redriven", "quarantined",
	"refused", "discarded", "succeeded", "failed_again", "key_removed", "shown", "purged", "erased",
	"erasure", "resealed", "sequence", "policy", "freeze", "cause"}
