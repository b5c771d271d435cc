package console

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// maxEditable is the largest payload that can be edited: what campaigns.Edit.Payload takes.
const maxEditable = 256 << 10

// A payload goes through the text area of a form and back without a change that the person did not make. A browser sends
// each end of a line as CR and LF, drops what is no text, and knows nothing of bytes. What could not come back is refused.

// The reasons for which a payload is not edited as a text.
var (
	errLarge    = errors.New("the payload is too large")
	errBinary   = errors.New("the payload is no text in UTF-8")
	errControl  = errors.New("the payload has control characters, which a browser changes")
	errLineEnds = errors.New("the payload has line ends of several kinds, which a browser makes one kind")
)

// checkEditable returns why a payload cannot be edited as a text, or nil.
func checkEditable(payload []byte) error {
	if len(payload) > maxEditable {
		return fmt.Errorf("%w: it has %d bytes, and %d can be edited", errLarge, len(payload), maxEditable)
	}
	if !utf8.Valid(payload) {
		return errBinary
	}
	text := string(payload)
	for _, r := range text {
		if r < ' ' && r != '\t' && r != '\n' && r != '\r' || r == 0x7f {
			return errControl
		}
	}
	pairs := strings.Count(text, "\r\n")
	if returns, feeds := strings.Count(text, "\r"),
		strings.Count(text, "\n"); returns > 0 && (returns != pairs || feeds != pairs) {
		return errLineEnds
	}
	return nil
}

// typedBack returns what a person made of a payload that checkEditable accepts: with the line ends of that payload.
func typedBack(payload []byte, typed string) (string, error) {
	if !utf8.ValidString(typed) {
		return "", errBinary
	}
	typed = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(typed)
	if strings.Contains(string(payload), "\r\n") {
		typed = strings.ReplaceAll(typed, "\n", "\r\n")
	}
	return typed, checkEditable([]byte(typed))
}
