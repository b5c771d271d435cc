package operate

import (
	"context"
	"fmt"

	"github.com/watermill-spillway/spillway/internal/text/boundedtext"
)

// Wrong is an error of what a person asked for. The person can correct it.
type Wrong struct {
	Field string // of the request, if it is one
	Why   string // with the value and the remedy
	// Value and Remedy are those of Why, if they can be told apart.
	Value, Remedy string
}

func (w *Wrong) Error() string {
	if w.Field == "" {
		return w.Why
	}
	return w.Field + " " + w.Why
}

// wrong is the error of a field.
func wrong(field, format string, args ...any) *Wrong {
	return &Wrong{Field: field, Why: fmt.Sprintf(format, args...)}
}

// wrongValue is the error of a field that has a value which it cannot have.
func wrongValue(field, value, remedy string) *Wrong { return WrongValue(field, value, remedy) }

// WrongValue is the error of a field that has a value which it cannot have.
func WrongValue(field, value, remedy string) *Wrong {
	value = boundedtext.Text(value, 100)
	return &Wrong{Field: field, Why: fmt.Sprintf("is %q: %s", value, remedy), Value: value, Remedy: remedy}
}

// told is the error of a request whose sender is in the same process.
type told struct{ err error }

type toldKey struct{}

// Telling lets Told return what Tell was called with.
func Telling(ctx context.Context) context.Context { return context.WithValue(ctx, toldKey{}, &told{}) }

// Tell tells the sender of a request, if it is in the same process, why it is not answered. The first to tell counts.
func Tell(ctx context.Context, err error) {
	if t, is := ctx.Value(toldKey{}).(*told); is && t.err == nil {
		t.err = err
	}
}

// Told returns why a request was not answered.
func Told(ctx context.Context) error {
	if t, is := ctx.Value(toldKey{}).(*told); is {
		return t.err
	}
	return nil
}
