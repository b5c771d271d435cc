package operate

import (
	"fmt"

	"github.com/watermill-spillway/spillway/internal/boundedtext"
)

// Wrong is an error of what a person asked for. The person can correct it.
type Wrong struct {
	Field string // of the request, if it is one
	Why   string // with the value and the remedy
}

func (w *Wrong) Error() string {
	if w.Field == "" {
		return w.Why
	}
	return w.Field + " " + w.Why
}

// wrong is the error of a field.
func wrong(field, format string, args ...any) *Wrong {
	return &Wrong{field, fmt.Sprintf(format, args...)}
}

// wrongValue is the error of a field that has a value which it cannot have.
func wrongValue(field, value, remedy string) *Wrong {
	return wrong(field, "is %q: %s", boundedtext.Text(value, 100), remedy)
}
