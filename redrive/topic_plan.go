package redrive

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/timing/period"
	"github.com/watermill-spillway/spillway/poison"
)

// planSamples is how many letters a dry run shows.
const planSamples = 10

// topicPlanning is one PlanTopic.
type topicPlanning struct {
	rules
	config           DrainTopicConfig
	plan             inside.TopicPlan
	causes           map[inside.PlannedCause]*plannedCause
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
	cause := inside.PlannedCause{Topic: logged(l.Origin.Topic), Handler: logged(l.Origin.Handler),
		Class:  l.Failure.Class,
		Reason: logged(l.Failure.Reason), Type: logged(l.Failure.Type)}
	if p.causes[cause] == nil && len(p.causes) < maxDistinct {
		p.causes[cause] = new(plannedCause)
	}
	if n := p.causes[cause]; n != nil {
		n.letters++
		n.description = logged(l.Failure.Description)
	}
	if len(p.plan.Sample) < planSamples {
		p.plan.Sample = append(p.plan.Sample, inside.TopicLetter{Letter: *l, Target: topic})
	}
}

func (p *topicPlanning) count(topics map[string]int, topic string) {
	if topic = logged(topic); topics[topic] > 0 || len(topics) < maxDistinct {
		topics[topic]++
	}
}

func (p *topicPlanning) result() inside.TopicPlan {
	for cause, n := range p.causes {
		cause.Description, cause.Letters = n.description, n.letters
		p.plan.Causes = append(p.plan.Causes, cause)
	}
	slices.SortFunc(p.plan.Causes, func(a, b inside.PlannedCause) int {
		return cmp.Or(cmp.Compare(b.Letters, a.Letters), cmp.Compare(a.Topic, b.Topic),
			cmp.Compare(a.Handler, b.Handler),
			cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Type, b.Type), cmp.Compare(a.Class, b.Class))
	})
	p.plan.Causes = p.plan.Causes[:min(len(p.plan.Causes), maxPlanned)]
	p.plan.Targets, p.plan.RefusedTopics = mostFirst(p.targets, maxPlanned), mostFirst(p.refused, maxPlanned)
	if p.Rate > 0 {
		p.plan.Takes = period.Duration(float64(p.plan.Letters) / p.Rate * float64(time.Second))
	}
	return p.plan
}

// mostFirst are topics by the number of their letters, at most so many of them.
func mostFirst(topics map[string]int, most int) (counted []inside.TopicCount) {
	for _, topic := range slices.Sorted(maps.Keys(topics)) {
		counted = append(counted, inside.TopicCount{Topic: topic, Letters: topics[topic]})
	}
	slices.SortStableFunc(counted, func(a, b inside.TopicCount) int { return cmp.Compare(b.Letters, a.Letters) })
	return counted[:min(len(counted), most)]
}
