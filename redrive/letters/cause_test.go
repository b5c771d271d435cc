package letters_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"pgregory.net/rapid"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive/internal/fixture"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Feature V9: the cause of a letter that a hook sees is the cause under which the Store keeps the letter, whatever its
// texts are.
func TestCauseOf(t *testing.T) {
	store := fixture.SQLite.NewStore(t)
	texts := rapid.OneOf(rapid.String(), rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) }),
		rapid.SampledFrom([]string{"", "boom", "a\nb", "\x00", strings.Repeat("long ", 2000), strings.Repeat("é", 3000), strings.Repeat("x", 5000), "order 7 of 'Ann'"}))
	rapid.Check(t, func(t *rapid.T) {
		id := rapid.StringMatching(`[a-z]{12}`).Draw(t, "id")
		l := poison.Letter{
			Original: message.NewMessage(id, []byte("{}")), DeadLetterTopic: "orders.dlq",
			Origin: poison.Origin{Topic: texts.Draw(t, "topic"), Handler: texts.Draw(t, "handler"), MessageID: id},
			Failure: poison.Failure{Class: classify.ClassPermanent, Reason: texts.Draw(t, "reason"), Type: texts.Draw(t, "type"),
				StackHash: "abc", Stack: strings.Repeat("frame\n", 3000), Description: texts.Draw(t, "description")},
		}
		testkit.NoError(t, store.Publish(l.DeadLetterTopic, l.Encode()))
		heads, err := store.Heads(t.Context(), letters.Filter{IDs: []string{id}, Causes: []string{letters.CauseOf(l)}})
		if err != nil || len(heads) == 0 {
			t.Fatalf("the letter is not among those of its cause %s: %v", letters.CauseOf(l), err)
		}
	})
}

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
