package redrive

import "fmt"

// Status is the state of a letter in a Store. A lease is not a status: a leased letter keeps the one it had.
type Status string

const (
	// StatusWaiting is a letter that a drain takes.
	StatusWaiting Status = "waiting"
	// StatusRedriven is a letter that was published to its topic.
	StatusRedriven Status = "redriven"
	// StatusQuarantined is a letter that was redriven as often as is allowed and failed again.
	StatusQuarantined Status = "quarantined"
	// StatusRefused is a letter that a person refused. A drain refuses none: a letter that it may not publish stays as it is.
	StatusRefused Status = "refused"
	// StatusDiscarded is a letter that a person gave up.
	StatusDiscarded Status = "discarded"
)

// valid returns an error for a status that is none of the above.
func (s Status) valid() error {
	switch s {
	case StatusWaiting, StatusRedriven, StatusQuarantined, StatusRefused, StatusDiscarded:
		return nil
	}
	return fmt.Errorf("redrive: unknown status %q: use one of the Status constants", string(s))
}
