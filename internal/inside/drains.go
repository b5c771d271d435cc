package inside

import (
	"github.com/watermill-spillway/spillway/internal/timing"
	"github.com/watermill-spillway/spillway/poison"
)

// TopicPlan is what a drain of a topic would do. Messages is the sum of Letters, Quarantine, Refused, NotChosen and
// NoLetters.
type TopicPlan struct {
	// Messages is the number of messages that were looked at.
	Messages int `json:"messages"`
	// Letters is the number of letters that would be published to their topics.
	Letters int `json:"letters"`
	// Quarantine is the number of letters that failed again after MaxRedrives redrives: they would go to
	// <topic>.quarantine.
	Quarantine int `json:"quarantine"`
	// Refused is the number of letters whose topic is not in Allow: they would go to <topic>.parked.
	Refused int `json:"refused"`
	// RefusedTopics are the topics of Refused letters, the most letters first, at most 100. An empty topic says that
	// there is none.
	RefusedTopics []TopicCount `json:"refused_topics,omitempty"`
	// NotChosen is the number of letters that the filter does not choose: they would go to <topic>.parked.
	NotChosen int `json:"not_chosen"`
	// NoLetters is the number of messages that are no letters: they would go to <topic>.parked.
	NoLetters int `json:"no_letters"`
	// Causes are the Letters by what failed, the most first, at most 100.
	Causes []PlannedCause `json:"causes"`
	// Targets are the Letters by the topic that they would go to, the most first, at most 100.
	Targets []TopicCount `json:"targets"`
	// Sample are the first of the Letters, at most redrive.PlanSamples of them, with payloads. They are not part of the
	// JSON.
	Sample []TopicLetter `json:"-"`
	// Takes is how long the drain would run at its rate. It is 0 without a rate.
	Takes timing.Duration `json:"takes,omitempty"`
}

// TopicCount is the number of letters of one topic.
type TopicCount struct {
	// Topic is empty for letters without an origin topic.
	Topic   string `json:"topic"`
	Letters int    `json:"letters"`
}

// TopicLetter is a letter of the sample.
type TopicLetter struct {
	poison.Letter
	// Target is the topic that it would go to.
	Target string
}
