package letters

import (
	"fmt"
	"slices"
)

// Status is the state of a letter in a Store. A lease is not a status: a leased letter keeps the status that it had.
type Status string

const (
	// StatusWaiting is the status of a letter that a drain takes.
	StatusWaiting Status = "waiting"
	// StatusRedriven is the status of a letter that was published to its topic.
	StatusRedriven Status = "redriven"
	// StatusSucceeded is the status of a redriven letter whose message was handled then.
	StatusSucceeded Status = "succeeded"
	// StatusFailedAgain is the status of a redriven letter whose message became another dead letter.
	StatusFailedAgain Status = "failed_again"
	// StatusQuarantined is the status of a letter that failed again after its last redrive.
	StatusQuarantined Status = "quarantined"
	// StatusRefused is the status of a letter that a person refused. No drain sets it.
	StatusRefused Status = "refused"
	// StatusDiscarded is the status of a letter that a person gave up. No redrive takes it, until MarkAll restores it.
	StatusDiscarded Status = "discarded"
	// StatusErased is the status of a letter whose payload, metadata and texts are gone. No redrive takes it, and only
	// Erase sets it. A letter does not leave this status.
	StatusErased Status = "erased"
)

// Statuses are all states that a letter can have.
func Statuses() []Status {
	return []Status{StatusWaiting, StatusRedriven, StatusSucceeded, StatusFailedAgain, StatusQuarantined, StatusRefused,
		StatusDiscarded, StatusErased}
}

// event is what the record calls a letter's way into the status.
func (s Status) event() EventKind { return EventKind(s) }

// settable returns an error if no caller may set s.
func (s Status) settable() error {
	if s == StatusErased {
		return fmt.Errorf("the status %q: use Erase", string(s))
	}
	return s.validate()
}

// validate returns an error if s is no constant of this package.
func (s Status) validate() error {
	if slices.Contains(Statuses(), s) {
		return nil
	}
	return fmt.Errorf("unknown status %q: use one of %q", string(s), Statuses())
}
