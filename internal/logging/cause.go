package logging

import (
	"errors"

	"github.com/watermill-spillway/spillway/internal/boundedtext"
)

// maxCause bounds the text of an error in a log line.
const maxCause = 1 << 10

// Cause returns an error with the head of text. Mask text before: a cut first can leave half of a secret. The error does not wrap the
// original, whose text is not masked.
func Cause(text string) error { return errors.New(boundedtext.Text(text, maxCause)) }
