package redrive

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/poison"
)

// TopicPlan is what DrainTopic would do. Messages is the sum of Letters, Quarantine, Refused, NotChosen and NoLetters.
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
	// RefusedTopics are the topics of Refused letters, the most letters first, at most 100. An empty topic says that there
	// is none.
	RefusedTopics []TopicCount `json:"refused_topics,omitempty"`
	// NotChosen is the number of letters that the filter does not choose: they would go to <topic>.parked.
	NotChosen int `json:"not_chosen"`
	// NoLetters is the number of messages that are no letters: they would go to <topic>.parked.
	NoLetters int `json:"no_letters"`
	// Causes are the Letters by what failed, the most first, at most 100.
	Causes []PlannedCause `json:"causes"`
	// Targets are the Letters by the topic that they would go to, the most first, at most 100.
	Targets []TopicCount `json:"targets"`
	// Sample are the first of the Letters, at most PlanSamples of them, with payloads. They are not part of the JSON.
	Sample []PlannedLetter `json:"-"`
	// Takes is how long the drain would run at its rate. It is 0 without a rate.
	Takes time.Duration `json:"takes,omitempty"`
}

// PlannedCause counts the letters of one cause. Its texts are cut after 200 characters.
type PlannedCause struct {
	Topic   string         `json:"topic"`
	Handler string         `json:"handler"`
	Class   classify.Class `json:"class"`
	Reason  string         `json:"reason"`
	Type    string         `json:"type"`
	// Description is that of the last letter.
	Description string `json:"description"`
	Letters     int    `json:"letters"`
}

// PlannedLetter is a letter of the sample.
type PlannedLetter struct {
	poison.Letter
	// Target is the topic that it would go to.
	Target string
}

// PlanSamples is how many letters the sample of a TopicPlan has.
const PlanSamples = 10

// topicPlanning is one PlanTopic.
type topicPlanning struct {
	rules
	config           DrainTopicConfig
	plan             TopicPlan
	causes           map[PlannedCause]*plannedCause
	targets, refused map[string]int
}

type plannedCause struct {
	letters     int
	description string // of the last letter
}

const (
	// maxDistinct bounds what is counted apart: topics and causes come with messages, and may be many.
	maxDistinct = 10_000
	maxPlanned  = 100
)

func (p *topicPlanning) letter(l *poison.Letter, topic string) {
	p.plan.Letters++
	p.count(p.targets, topic)
	cause := PlannedCause{Topic: logged(l.Origin.Topic), Handler: logged(l.Origin.Handler), Class: l.Failure.Class,
		Reason: logged(l.Failure.Reason), Type: logged(l.Failure.Type)}
	if p.causes[cause] == nil && len(p.causes) < maxDistinct {
		p.causes[cause] = new(plannedCause)
	}
	if n := p.causes[cause]; n != nil {
		n.letters++
		n.description = logged(l.Failure.Description)
	}
	if len(p.plan.Sample) < PlanSamples {
		p.plan.Sample = append(p.plan.Sample, PlannedLetter{*l, topic})
	}
}

func (p *topicPlanning) count(topics map[string]int, topic string) {
	if topic = logged(topic); topics[topic] > 0 || len(topics) < maxDistinct {
		topics[topic]++
	}
}

// report is the plan so far, as Progress knows it.
func (p *topicPlanning) report() Report {
	n := &p.plan
	return Report{ID: p.id, Taken: n.Messages, Redriven: n.Letters, Quarantined: n.Quarantine, Refused: n.Refused,
		Parked: n.NotChosen + n.NoLetters}
}

func (p *topicPlanning) result() TopicPlan {
	for cause, n := range p.causes {
		cause.Description, cause.Letters = n.description, n.letters
		p.plan.Causes = append(p.plan.Causes, cause)
	}
	slices.SortFunc(p.plan.Causes, func(a, b PlannedCause) int {
		return cmp.Or(cmp.Compare(b.Letters, a.Letters), cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Handler, b.Handler),
			cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Type, b.Type), cmp.Compare(a.Class, b.Class))
	})
	p.plan.Causes = p.plan.Causes[:min(len(p.plan.Causes), maxPlanned)]
	p.plan.Targets, p.plan.RefusedTopics = mostFirst(p.targets, maxPlanned), mostFirst(p.refused, maxPlanned)
	if p.Rate > 0 {
		p.plan.Takes = time.Duration(float64(p.plan.Letters) / p.Rate * float64(time.Second))
	}
	return p.plan
}

// mostFirst are topics by the number of their letters, at most so many of them.
func mostFirst(topics map[string]int, most int) (counted []TopicCount) {
	for _, topic := range slices.Sorted(maps.Keys(topics)) {
		counted = append(counted, TopicCount{Topic: topic, Letters: topics[topic]})
	}
	slices.SortStableFunc(counted, func(a, b TopicCount) int { return cmp.Compare(b.Letters, a.Letters) })
	return counted[:min(len(counted), most)]
}
