// Package editable takes a payload through the text area of a form and back without a change that the person did not
// make. A browser sends each end of a line as CR and LF, drops what is no text, and knows nothing of bytes. What could
// not come back is refused.
package editable

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// MaxBytes is the largest payload that can be edited: what campaigns.Edit.Payload takes.
const MaxBytes = 256 << 10

// The reasons for which a payload is not edited as a text.
var (
	ErrLarge    = errors.New("the payload is too large")
	ErrBinary   = errors.New("the payload is no text in UTF-8")
	ErrControl  = errors.New("the payload has control characters, which a browser changes")
	ErrLineEnds = errors.New("the payload has line ends of several kinds, which a browser makes one kind")
)

// Check returns why a payload cannot be edited as a text, or nil.
func Check(payload []byte) error {
	if len(payload) > MaxBytes {
		return fmt.Errorf("%w: it has %d bytes, and %d can be edited", ErrLarge, len(payload), MaxBytes)
	}
	if !utf8.Valid(payload) {
		return ErrBinary
	}
	text := string(payload)
	for _, r := range text {
		if r < ' ' && r != '\t' && r != '\n' && r != '\r' || r == 0x7f {
			return ErrControl
		}
	}
	pairs := strings.Count(text, "\r\n")
	if returns, feeds := strings.Count(text, "\r"),
		strings.Count(text, "\n"); returns > 0 && (returns != pairs || feeds != pairs) {
		return ErrLineEnds
	}
	return nil
}

// Back returns what a person made of a payload that Check accepts: with the line ends of that payload.
func Back(payload []byte, typed string) (string, error) {
	if !utf8.ValidString(typed) {
		return "", ErrBinary
	}
	typed = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(typed)
	if strings.Contains(string(payload), "\r\n") {
		typed = strings.ReplaceAll(typed, "\n", "\r\n")
	}
	return typed, Check([]byte(typed))
}
