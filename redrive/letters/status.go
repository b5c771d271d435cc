package letters

import "fmt"

// Status is the state of a letter in a Store. A lease is not a status: a leased letter keeps the status that it had.
type Status string

const (
	// StatusWaiting is the status of a letter that a drain takes.
	StatusWaiting Status = "waiting"
	// StatusRedriven is the status of a letter that was published to its topic.
	StatusRedriven Status = "redriven"
	// StatusQuarantined is the status of a letter that failed again after its last redrive.
	StatusQuarantined Status = "quarantined"
	// StatusRefused is the status of a letter that a person refused. No drain sets it.
	StatusRefused Status = "refused"
	// StatusDiscarded is the status of a letter that a person gave up.
	StatusDiscarded Status = "discarded"
)

// validate returns an error if s is no constant of this package.
func (s Status) validate() error {
	switch s {
	case StatusWaiting, StatusRedriven, StatusQuarantined, StatusRefused, StatusDiscarded:
		return nil
	}
	return fmt.Errorf("unknown status %q: use one of the Status constants", string(s))
}
