package main

import (
	"cmp"
	"strings"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
)

// A kind says what the handler does with a message, and so what must become of it.
type kind struct {
	name string
	// share of the messages is of this kind, and at least least of them.
	share float64
	least int
	// reason is that of the dead letter that the message must become. Empty: it must take effect, and no letter may be.
	reason string
	// effects is how many effects the message may have at most.
	effects int
}

// The kinds. What is left of the messages is healthy.
const (
	healthy       = "healthy"       // takes effect
	doubled       = "doubled"       // is published twice with one id
	slow          = "slow"          // takes longer than what goes away waits, and does not heed its context
	transient     = "transient"     // fails at first in each delivery
	staged        = "staged"        // fails until its first or second stage
	hopeless      = "hopeless"      // fails in all stages
	permanent     = "permanent"     // fails for good
	invalid       = "invalid"       // is unacceptable
	panicking     = "panicking"     // panics
	oversized     = "oversized"     // fails for good, and hardly leaves room for a letter's metadata
	undeliverable = "undeliverable" // produces what the broker refuses for what it is
	deadly        = "deadly"        // ends the process
	neighbour     = "neighbour"     // ends the process, and stands beside one or two others that do
	unnamed       = "unnamed"       // has no message id, and takes effect, some in a stage
	rejected      = "rejected"      // has no message id, and fails for good
)

var kinds = []kind{
	{name: doubled, share: 0.05, least: 3, effects: 1},
	{name: slow, share: 0.002, least: 4, effects: 1},
	{name: transient, share: 0.08, least: 3, effects: 1},
	{name: staged, share: 0.015, least: 2, effects: 1},
	{name: hopeless, share: 0.005, least: 1, reason: classify.ReasonTransientMaxRetries},
	{name: permanent, share: 0.03, least: 2, reason: classify.ReasonPermanent},
	{name: invalid, share: 0.01, least: 1, reason: classify.ReasonInvalid},
	{name: panicking, share: 0.01, least: 1, reason: classify.ReasonPanic},
	{name: oversized, share: 0.0005, least: 2, reason: classify.ReasonPermanent},
	// The receiver's transaction commits before the broker refuses what it produced, but on tables, where both are one.
	{name: undeliverable, share: 0.001, least: 1, reason: classify.ReasonOutput, effects: 1},
	{name: deadly, share: 0.0002, least: 1, reason: classify.ReasonMaxDeliveries},
	{name: neighbour, share: 0.00025, least: 2, reason: classify.ReasonMaxDeliveries},
	{name: unnamed, share: 0.02, least: 4, effects: 1},
	{name: rejected, share: 0.01, least: 3, reason: classify.ReasonPermanent},
	{name: healthy, effects: 1}, // the last one: what is left
}

// nameOf returns what a message is accounted by: its id, or a name in its metadata if it has none.
func nameOf(msg *message.Message) string { return cmp.Or(msg.Metadata.Get(nameKey), msg.UUID) }

const nameKey = "name"

// kindOf reads a message's kind from its id.
func kindOf(id string) kind {
	name, _, _ := strings.Cut(id, "-")
	for _, k := range kinds {
		if k.name == name {
			return k
		}
	}
	return kind{name: "unknown"}
}
