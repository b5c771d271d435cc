package command

import (
	"strings"
	"time"

	"github.com/watermill-spillway/spillway/cmd/redrive/internal/screen"
	"github.com/watermill-spillway/spillway/internal/inside"
)

// topicPlan prints what a drain of a topic would do.
func (a *app) topicPlan(topic string, p inside.TopicPlan) error {
	if a.json {
		return a.screen.JSON(p)
	}
	line := "would redrive " + several(p.Letters, "letter") + " of " + several(p.Messages, "message")
	if p.Takes > 0 {
		line += ", in " + rounded(time.Duration(p.Takes))
	}
	a.screen.Styled(screen.Bold, "%s", line)
	for _, other := range []struct {
		n              int
		do, what, them string
	}{
		{p.Quarantine, "quarantine", "letter", "failed again too often"},
		{p.Refused, "park", "letter", "a topic that --allow does not name"},
		{p.NotChosen, "park", "letter", "not chosen"},
		{p.NoLetters, "park", "message", "no letter"},
	} {
		if other.n > 0 {
			a.screen.Line("would %s %s: %s", other.do, several(other.n, other.what), other.them)
		}
	}
	if p.Messages == 0 {
		return none("no message waits in %q", topic)
	}
	if len(p.RefusedTopics) > 0 {
		a.histogram("not allowed", p.Refused, len(p.RefusedTopics), func(i int) (string, int) {
			return p.RefusedTopics[i].Topic, p.RefusedTopics[i].Letters
		})
	}
	if p.Letters == 0 {
		return none("nothing would be redriven")
	}
	a.histogram("to", p.Letters, len(p.Targets), func(i int) (string, int) {
		return p.Targets[i].Topic, p.Targets[i].Letters
	})
	a.histogram("cause", p.Letters, len(p.Causes), func(i int) (string, int) {
		c := p.Causes[i]
		return strings.TrimSpace(c.Handler + " " + c.Reason + " " + c.Description), c.Letters
	})
	a.screen.Head("sample")
	t := &screen.Table{Columns: []screen.Column{
		{Name: "FIRST FAILED", Style: screen.Dim, Drop: 1}, {Name: "TO", Min: 8}, {Name: "HANDLER", Min: 8, Drop: 2},
		{Name: "ID", Min: 8}, {Name: "DESCRIPTION", Min: 16},
	}}
	for _, l := range p.Sample {
		t.Row(a.when(l.Failure.FirstFailedAt), l.Target, l.Origin.Handler, l.Original.UUID, l.Failure.Description)
	}
	a.screen.Table(t)
	return nil
}
