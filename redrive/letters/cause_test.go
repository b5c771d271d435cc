package letters_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Feature V9: letters of one cause are one group: errors of one type that say different things are different causes, and
// those that differ only in numbers, ids and quoted texts are one.
func TestStore_causes(t *testing.T) { onEach(t, testStore_causes) }

func testStore_causes(t *testing.T, on database) {
	store := on.NewStore(t)
	queue, err := poison.NewQueue(store, poison.QueueConfig{})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, cause := range []struct {
		times int
		err   func(i int) error
	}{
		{3, func(int) error { return errors.New("disk full") }},
		{4, func(int) error { return errors.New("no such customer") }},
		{5, func(i int) error { return fmt.Errorf("status %d", 500+i) }},
		{6, func(i int) error { return fmt.Errorf(`order "A-%d" of 5f1c7a%04x is unknown`, i, i) }},
	} {
		for i := range cause.times {
			n++
			handler := queue.Middleware(func(*message.Message) ([]*message.Message, error) { return nil, cause.err(i) })
			if _, err := handler(message.NewMessage(fmt.Sprint(n), []byte("{}"))); err != nil {
				t.Fatal(err)
			}
		}
	}
	groups, err := store.Groups(t.Context(), letters.Filter{})
	if err != nil || len(groups) != 4 {
		t.Fatalf("%d groups, %v: %+v", len(groups), err, groups)
	}
	for i, want := range []string{`order "A-5" of 5f1c7a0005 is unknown`, "status 504", "no such customer", "disk full"} {
		if groups[i].Count != 6-i || groups[i].Description != want {
			t.Errorf("%+v, want %d of %s", groups[i], 6-i, want)
		}
	}
}
