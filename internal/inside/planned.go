package inside

import (
	"cmp"
	"maps"
	"slices"

	"github.com/watermill-spillway/spillway/internal/boundedtext"
	"github.com/watermill-spillway/spillway/poison"
)

const (
	// maxDistinct bounds what a dry run counts apart: topics and causes come with messages, and may be many.
	maxDistinct = 10_000
	// MaxPlanned is how many topics, and how many causes, a dry run returns.
	MaxPlanned = 100
)

// TopicCounts counts letters by topic. A topic is cut after 200 characters.
type TopicCounts map[string]int

// Add counts a letter.
func (t TopicCounts) Add(topic string) {
	if topic = boundedtext.Text(topic, 200); t[topic] > 0 || len(t) < maxDistinct {
		t[topic]++
	}
}

// MostFirst are the topics by the number of their letters, at most so many of them.
func (t TopicCounts) MostFirst(most int) (counted []TopicCount) {
	for _, topic := range slices.Sorted(maps.Keys(t)) {
		counted = append(counted, TopicCount{Topic: topic, Letters: t[topic]})
	}
	slices.SortStableFunc(counted, func(a, b TopicCount) int { return cmp.Compare(b.Letters, a.Letters) })
	return counted[:min(len(counted), most)]
}

// CauseCounts counts letters by what failed. Its keys have no Description.
type CauseCounts map[PlannedCause]*PlannedCause

// Add counts a letter.
func (c CauseCounts) Add(l *poison.Letter) {
	text := func(s string) string { return boundedtext.Text(s, 200) }
	cause := PlannedCause{Topic: text(l.Origin.Topic), Handler: text(l.Origin.Handler), Class: l.Failure.Class,
		Reason: text(l.Failure.Reason), Type: text(l.Failure.Type)}
	if c[cause] == nil && len(c) < maxDistinct {
		n := cause
		c[cause] = &n
	}
	if n := c[cause]; n != nil {
		n.Letters++
		n.Description = text(l.Failure.Description)
	}
}

// MostFirst are the causes by the number of their letters, at most MaxPlanned of them.
func (c CauseCounts) MostFirst() (counted []PlannedCause) {
	for _, n := range c {
		counted = append(counted, *n)
	}
	slices.SortFunc(counted, func(a, b PlannedCause) int {
		return cmp.Or(cmp.Compare(b.Letters, a.Letters), cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Handler, b.Handler),
			cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Type, b.Type), cmp.Compare(a.Class, b.Class))
	})
	return counted[:min(len(counted), MaxPlanned)]
}
