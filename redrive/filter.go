package redrive

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/poison"
)

const (
	// DefaultLimit is how many rows List and Groups return at the most, where Filter.Limit is 0.
	DefaultLimit = 100
	// MaxLimit is the greatest Filter.Limit.
	MaxLimit = 1000

	maxListed = 500 // values in one list of a filter: each is a bound parameter
)

// Filter chooses letters. The zero value chooses all that wait. A letter must satisfy every field that is set, and of a
// list any one value.
type Filter struct {
	// Topics are origin topics.
	Topics []string
	// DeadLetterTopics are the topics the letters were placed in.
	DeadLetterTopics []string
	// Handlers are names of the handlers that failed.
	Handlers []string
	// Classes and Reasons are those of the latest failure.
	Classes []classify.Class
	Reasons []string
	// Types are chains of error types, as Failure.Type has them.
	Types []string
	// Description is a text that the description of the latest failure contains, byte for byte.
	Description string
	// Causes are hashes of causes, as Group.Cause has them.
	Causes []string
	// RedriveIDs are ids of drains (Report.ID). Such a drain brought the letter back, and the letter failed again; or, in a
	// Store, such a drain was the last to change the letter's status, see Statuses.
	RedriveIDs []string
	// StackHash is the hash of the latest failure's stack.
	StackHash string
	// IDs are message ids.
	IDs []string
	// Since and Until bound the time of the latest failure, Since included and Until not. A letter that does not tell
	// its time failed when it arrived here.
	Since, Until time.Time

	// The rest is for a Store alone.

	// Statuses defaults to StatusWaiting.
	Statuses []Status
	// After is the Seq of the last letter seen: only later ones are chosen. It pages through a List.
	After int64
	// MaxSeq is the Seq of the last letter to choose. 0 means no bound.
	MaxSeq int64
	// Limit bounds what List and Groups return. Default: DefaultLimit; at most MaxLimit.
	Limit int

	allowed []string // origin topics, of a drain
	refused []string // origin topics that are not these
}

func (f *Filter) validate(owner string) error {
	lists := []struct {
		field string
		n     int
	}{
		{"Topics", len(f.Topics)}, {"DeadLetterTopics", len(f.DeadLetterTopics)}, {"Handlers", len(f.Handlers)},
		{"Classes", len(f.Classes)}, {"Reasons", len(f.Reasons)}, {"IDs", len(f.IDs)}, {"Statuses", len(f.Statuses)},
		{"Types", len(f.Types)}, {"Causes", len(f.Causes)}, {"RedriveIDs", len(f.RedriveIDs)},
	}
	for _, list := range lists {
		if list.n > maxListed {
			return fmt.Errorf("redrive: %s.%s lists %d values, at most %d are possible: use several calls", owner, list.field, list.n, maxListed)
		}
	}
	for _, status := range f.Statuses {
		if err := status.valid(); err != nil {
			return fmt.Errorf("%w (%s.Statuses)", err, owner)
		}
	}
	if f.Limit < 0 || f.Limit > MaxLimit {
		return fmt.Errorf("redrive: %s.Limit is %d: it must be 0 to %d; page with After", owner, f.Limit, MaxLimit)
	}
	if f.After < 0 || f.MaxSeq < 0 {
		return fmt.Errorf("redrive: %s.After (%d) and MaxSeq (%d) must not be negative", owner, f.After, f.MaxSeq)
	}
	return nil
}

// onLetter returns an error when f asks for what only a store knows.
func (f *Filter) onLetter(owner string) error {
	if len(f.Statuses) > 0 || f.After != 0 || f.MaxSeq != 0 || f.Limit != 0 {
		return fmt.Errorf("redrive: %s.Statuses, After, MaxSeq and Limit choose rows of a Store: a topic has none, leave them empty", owner)
	}
	return f.validate(owner)
}

// matches tells whether f chooses a letter that arrived now in the dead-letter topic.
func (f *Filter) matches(l poison.Letter, deadLetterTopic string) bool {
	failed := lastFailed(l, time.Now())
	return anyOf(f.Topics, l.Origin.Topic) &&
		anyOf(f.DeadLetterTopics, deadLetterTopic) &&
		anyOf(f.Handlers, l.Origin.Handler) &&
		anyOf(f.Classes, l.Failure.Class) &&
		anyOf(f.Reasons, l.Failure.Reason) &&
		anyOf(f.Types, l.Failure.Type) &&
		strings.Contains(l.Failure.Description, f.Description) &&
		anyOf(f.RedriveIDs, l.Redrive.ID) &&
		(len(f.Causes) == 0 || slices.Contains(f.Causes, causeOf(deadLetterTopic, &l).hash())) &&
		(f.StackHash == "" || f.StackHash == l.Failure.StackHash) &&
		anyOf(f.IDs, l.Original.UUID) &&
		(f.Since.IsZero() || !failed.Before(f.Since)) &&
		(f.Until.IsZero() || failed.Before(f.Until))
}

func anyOf[T comparable](list []T, value T) bool {
	return len(list) == 0 || slices.Contains(list, value)
}

// lastFailed is when the letter failed, or when it arrived, if it does not tell.
func lastFailed(l poison.Letter, arrived time.Time) time.Time {
	if l.Failure.LastFailedAt.IsZero() {
		return arrived
	}
	return l.Failure.LastFailedAt
}
