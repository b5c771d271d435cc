package logging

import (
	"errors"

	"github.com/watermill-spillway/spillway/internal/boundedtext"
)

// maxCause bounds what a line tells of an error.
const maxCause = 1 << 10

// Cause returns an error with the head of text, which was masked before: to cut first could leave half of a secret. It unwraps
// to nothing, because the error that text is of was not masked.
func Cause(text string) error { return errors.New(boundedtext.Text(text, maxCause)) }
