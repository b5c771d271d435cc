package logging

import "github.com/watermill-spillway/spillway/internal/boundedtext"

// Cause returns an error with the head of text. Mask text before: a cut first can leave half of a secret. The error
// does not wrap the original, whose text is not masked.
func Cause(text string) error { return masked(boundedtext.Text(text, maxError)) }

// masked is an error whose text is masked.
type masked string

func (m masked) Error() string { return string(m) }
