package poison

import (
	"errors"

	"github.com/watermill-spillway/spillway/classify"
)

// Reject returns a permanent error with a reason code for programs and a description for people. A handler that returns
// it has its message dead-lettered at once. Use it if there is no other error to mark.
func Reject(reason, description string) error {
	text := description
	if text == "" {
		text = reason
	}
	return classify.Permanent(errors.New(text), classify.Reason(reason), classify.Description(description))
}
