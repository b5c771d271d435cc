package poison

import (
	"errors"

	"github.com/watermill-spillway/spillway/classify"
)

// Reject returns the error with which a handler sets its message aside at once and says why, where there is no other
// error to mark: a reason code for programs and a description for people.
func Reject(reason, description string) error {
	text := description
	if text == "" {
		text = reason
	}
	return classify.Permanent(errors.New(text), classify.Reason(reason), classify.Description(description))
}
