package letters_test

import (
	"context"
	"errors"
	"testing"

	"github.com/watermill-spillway/spillway/redrive/internal/fixture"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// ending is a context that is over once it was asked so many times.
type ending struct {
	context.Context
	left int
}

func (e *ending) Err() error {
	if e.left--; e.left < 0 {
		return context.DeadlineExceeded
	}
	return nil
}

// Feature V9, decision 23: a count that is cut off, wherever it is, returns no number.
func TestCountCutOff(t *testing.T) {
	store := fixture.SQLite.NewStore(t)
	fixture.Publish(t, store, "orders.dlq", fixture.Several(12)...)
	if _, err := store.Inside().DB().Exec(`UPDATE spillway_dead_letters SET seq = seq * 30000`); err != nil { // a statement reads 50,000 Seqs
		t.Fatal(err)
	}
	filter := letters.Filter{MaxSeq: 12 * 30000}
	for asked := 0; ; asked++ {
		n, err := store.Count(&ending{t.Context(), asked}, filter)
		switch {
		case err == nil && (n != 12 || asked == 0), err != nil && (n != 0 || !errors.Is(err, context.DeadlineExceeded)), asked > 1000:
			t.Fatalf("cut off when it was asked %d times: %d letters, %v", asked, n, err)
		case err == nil:
			return
		}
	}
}
