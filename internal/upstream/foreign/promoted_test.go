package foreign

import (
	"reflect"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
)

type (
	embeds struct{ message.Publisher }
	counts struct {
		message.Publisher
		N int
	}
	staysOpen struct{ message.Publisher }
	ignores   struct{ message.Publisher }
	two       struct {
		message.Publisher
		Inside message.Publisher
	}
	field   struct{ Pub message.Publisher }
	pointer struct{ *counts }
	unwraps struct{ message.Publisher }
)

func (staysOpen) Close() error            { return nil }
func (*ignores) Close() error             { return nil }
func (unwraps) Unwrap() message.Publisher { return nil }

// Feature D4: a struct passes Close on if its Close is that of the publisher that it embeds. One with a Close of its
// own keeps a shared publisher open.
func TestPromoted(t *testing.T) {
	for _, c := range []struct {
		of   reflect.Type
		want bool
	}{
		{reflect.TypeFor[embeds](), true},
		{reflect.TypeFor[counts](), true},
		{reflect.TypeFor[struct{ message.Publisher }](), true},
		{reflect.TypeFor[staysOpen](), false},
		{reflect.TypeFor[ignores](), false},
		{reflect.TypeFor[two](), false},
		{reflect.TypeFor[field](), false},
		{reflect.TypeFor[pointer](), false},
		{reflect.TypeFor[unwraps](), false},
		{reflect.TypeFor[int](), false},
	} {
		if promoted(c.of) != c.want {
			t.Errorf("%s: %t", c.of, !c.want)
		}
	}
}
