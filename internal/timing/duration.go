package timing

import (
	"encoding/json"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/watermill-spillway/spillway/internal/boundedtext"
)

// Duration is a time.Duration that is text in JSON, as programs read it: "1h30m", and no number of a unit that they would
// have to know.
type Duration time.Duration

// Pattern is what its texts match. time.ParseDuration reads them.
const Pattern = `^(0|([0-9]+(\.[0-9]+)?(h|m|s|ms|us|µs|ns))+)$`

// String is the text, without parts that are 0.
func (d Duration) String() string {
	text := time.Duration(d).String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(text, zero) {
			text = text[:len(text)-2]
		}
	}
	return text
}

// MarshalText returns the text.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads a text. Its error is one of the type, to which package json adds the name of the field.
func (d *Duration) UnmarshalText(text []byte) error {
	read, err := time.ParseDuration(string(text))
	if err != nil {
		return &json.UnmarshalTypeError{Value: strconv.Quote(boundedtext.Text(string(text), 100)),
			Type: reflect.TypeFor[Duration]()}
	}
	*d = Duration(read)
	return nil
}
