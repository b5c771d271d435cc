package redrive

import (
	"slices"

	"github.com/watermill-spillway/spillway/internal/safecall"
)

// Report says what a drain did until it ended, also if it ended with an error.
type Report struct {
	// ID is the x-redrive-id of every letter that was redriven.
	ID string
	// Taken counts the letters that were worked on, whatever became of them. A Refused letter of a Store is not among
	// them.
	Taken int
	// Redriven counts the letters that were published to their topic.
	Redriven int
	// Quarantined counts the letters that failed again after MaxRedrives redrives.
	Quarantined int
	// Refused counts the letters whose topic is not in Allow. Letters of a Store are counted when Drain starts; they stay
	// as they are and wait for a drain that allows their topic. Letters of a topic are parked.
	Refused int
	// RefusedTopics are the topics of Refused letters of a Store, those with the most letters first, at most 20.
	RefusedTopics []TopicCount
	// Sealed counts the sealed letters that did not open, which Refused does not count. Letters of a Store stay as they
	// are; letters of a topic are parked. SealError is the error of the first, which names its key.
	Sealed    int
	SealError error
	// Parked counts the messages of a topic that were not chosen, or that were no letters. Drain parks nothing.
	Parked int
	// Failed counts the letters that the publisher refused. Letters of a Store wait again; letters of a topic are parked.
	Failed int
	// LeasesLost counts the letters of a Store that another caller took over, or that arrived again, while the drain
	// worked on them. If they were published before, they will be published once more.
	LeasesLost int
}

// TopicCount is the number of letters of one topic.
type TopicCount struct {
	// Topic is empty for letters without an origin topic.
	Topic   string `json:"topic"`
	Letters int    `json:"letters"`
}

// report calls Progress, unless it is nil, with what the drain did so far.
func (r *rules) report(progress func(Report), report Report) {
	if progress != nil {
		report.RefusedTopics = slices.Clone(report.RefusedTopics)
		safecall.Hook(r.Logger, "redrive.Progress", func() { progress(report) })
	}
}
