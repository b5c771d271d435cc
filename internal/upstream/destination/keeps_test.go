package destination_test

import (
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/upstream/destination"
)

type says struct {
	message.Publisher
	drops bool
}

func (s says) Deduplicates() bool { return s.drops }

type panics struct{ testkit.Nowhere }

func (panics) Deduplicates() bool { panic("boom") }

type around struct{ message.Publisher }

// Feature V1, promise P1: a publisher whose broker drops messages by their ids is refused, however it is decorated. The
// outermost decorator that knows decides.
func TestCheckKeeps(t *testing.T) {
	drops, keeps := says{testkit.Nowhere{}, true}, says{testkit.Nowhere{}, false}
	for name, row := range map[string]struct {
		pub  message.Publisher
		want string
	}{
		"unknown":                     {testkit.Nowhere{}, ""},
		"decorated, keeps":            {around{around{keeps}}, ""},
		"known better outside":        {says{drops, false}, ""},
		"decorated, drops":            {around{drops}, "destination_test.says has Deduplicates() true"},
		"known better outside, drops": {says{keeps, true}, "would be lost"},
		"panics":                      {around{panics{}}, "boom"},
		"nil inside":                  {around{}, ""},
	} {
		if err := destination.CheckKeeps(row.pub); row.want != "" {
			testkit.Says(t, err, row.want)
		} else if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
