package campaigns

import (
	"errors"
	"slices"
)

// State is where a campaign stands.
type State string

const (
	// Selecting is the state of a campaign whose letters are being written down. Nothing is published.
	Selecting State = "selecting"
	// Approval is the state of a campaign that waits for Approve by a second person.
	Approval State = "approval"
	// Scheduled is the state of a campaign that waits for Request.NotBefore.
	Scheduled State = "scheduled"
	// Running is the state of a campaign that workers work on.
	Running State = "running"
	// Canary is the state of a campaign that published its first letters, and waits for what becomes of them.
	Canary State = "canary"
	// Paused is the state of a campaign that waits for Resume, or for Campaign.ResumeAt.
	Paused State = "paused"
	// Cancelled is the state of a campaign that was given up. The letters that it did not redrive wait as before.
	Cancelled State = "cancelled"
	// Finished is the state of a campaign that is through with all its letters.
	Finished State = "finished"
)

// States are all states, in the order in which a campaign can pass through them.
var States = []State{Selecting, Approval, Scheduled, Running, Canary, Paused, Cancelled, Finished}

// Ended reports whether a campaign in this state publishes nothing any more.
func (s State) Ended() bool { return s == Cancelled || s == Finished }

// steps are the states that may follow each state.
var steps = map[State][]State{
	Selecting: {Approval, Scheduled, Running, Cancelled},
	Approval:  {Scheduled, Running, Cancelled},
	Scheduled: {Running, Paused, Cancelled},
	Running:   {Approval, Canary, Paused, Cancelled, Finished},
	Canary:    {Running, Paused, Cancelled},
	Paused:    {Scheduled, Running, Canary, Cancelled},
}

// before returns the states that may become state to.
func before(to State) (from []State) {
	for _, s := range States {
		if slices.Contains(steps[s], to) {
			from = append(from, s)
		}
	}
	return from
}

var (
	// ErrNotFound is the error of an id that no campaign of the service has.
	ErrNotFound = errors.New("campaigns: no such campaign")
	// ErrState is the error of a call that the state of the campaign does not allow.
	ErrState = errors.New("campaigns: the state of the campaign does not allow it")
	// ErrNoLetters is the error of a Start whose selection has no letter that could be redriven.
	ErrNoLetters = errors.New("campaigns: no letter to redrive")
	// ErrRequest is the error of a Request, a rate or an Act that no campaign can have. The text of the error names the
	// field. Nothing was changed.
	ErrRequest = errors.New("campaigns: the request cannot be carried out")
)
