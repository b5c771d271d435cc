package conformance

import (
	"slices"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/middleware/stages"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive"
)

// Feature C5: what will not get better goes to no stage; an error that asks for time gets the stage that gives it, or
// is set aside where none may.
func (b *bench) stagesByClass() {
	delays := []time.Duration{100 * time.Millisecond, 300 * time.Millisecond, 500 * time.Millisecond}
	var j journal
	var l ledger
	b.startStaged(b.channel(b.staged(delays...), l.keep),
		b.noting(&j, func(stage int, msg *message.Message) error {
			kind, _, _ := strings.Cut(msg.UUID, "-")
			switch {
			case kind == "permanent":
				return classify.Permanent(errNever)
			case kind == "invalid":
				return classify.Invalid(errNever)
			case kind == "discard":
				return classify.Discard(errNever)
			case kind == "patient":
				return classify.Transient(errNotYet, classify.RetryAfter(25*time.Hour))
			case kind == "limited" && stage == 0: // longer than the first stage
				return classify.Transient(errNotYet, classify.RetryAfter(250*time.Millisecond))
			case kind == "slow" && stage == 0: // longer than any
				return classify.Transient(errNotYet, classify.RetryAfter(700*time.Millisecond))
			case kind == "unknown" && stage == 0:
				return errNotYet
			}
			return nil
		}))
	b.ids("permanent", "invalid", "discard", "patient", "limited", "slow", "unknown", "good")
	b.untilApplied("limited", "slow", "unknown", "good")
	b.untilPlaced(3)
	b.until("one is discarded", func() bool { return b.discarded.Load() >= 1 })
	b.wantOnce("limited", "slow", "unknown", "good")
	want := map[string][]int{"limited": {2}, "slow": {3}, "unknown": {1}}
	for id, tooks := range l.byID() {
		var stages []int
		for _, t := range tooks {
			if stages = append(stages, t.stage().Number); t.topic != b.stageTopic(delays[t.stage().Number-1]) {
				b.Errorf("%q went to stage %d in %q", id, t.stage().Number, t.topic)
			}
		}
		if stages = slices.Compact(stages); !slices.Equal(stages, want[id]) { // where it cannot be held it goes round
			b.Errorf("%q went to the stages %v instead of %v", id, stages, want[id])
		}
		delete(want, id)
	}
	if len(want) > 0 {
		b.Errorf("to no stage went %v", want)
	}
	for id, after := range map[string]time.Duration{"limited": 250 * time.Millisecond, "slow": 700 * time.Millisecond} {
		if v := j.of(id); len(v) > 1 && v[1].begun.Sub(v[0].ended) < after {
			b.Errorf("%q came back after %s", id, v[1].begun.Sub(v[0].ended))
		}
	}
	letters := append(b.letters(b.dlq(), 2), b.letter(b.invalid()))
	for _, l := range letters {
		if !slices.Contains([]string{"permanent", "patient", "invalid"}, l.Original.UUID) || l.Failure.Attempts != 1 {
			b.Errorf("set aside: %q after %d attempts", l.Original.UUID, l.Failure.Attempts)
		}
	}
}

// Feature V1b: letters enter at the first stage, apart from live traffic and at once, and go through the stages anew.
func (b *bench) redrivenIntoStage() {
	var j journal
	ch := b.channel(b.staged(shortStage, 2*shortStage))
	b.startStaged(ch, b.noting(&j, func(stage int, msg *message.Message) error {
		switch {
		case poison.Read(msg).Redrive.Count == 0:
			return classify.Permanent(errNever)
		case stage == 0: // where it entered it has not waited yet
			return errNotYet
		}
		return nil
	}))
	ids := numbered("id", 3)
	b.ids(ids...)
	b.untilPlaced(3)
	var l ledger
	entering := &spillway.Config{Stages: &stages.Config{Publisher: b.live}}
	l.keep(entering)
	report := b.drainThrough(entering.Stages.Publisher, b.dlq(), 3, func(c *redrive.DrainTopicConfig) {
		c.ReentryTopic = ch.Stages().ReentryTopic
	})
	if report.Redriven != 3 {
		b.Errorf("%+v", report)
	}
	b.untilApplied(ids...)
	b.wantOnce(ids...)
	for _, t := range l.all() {
		if t.topic != b.stageTopic(shortStage) {
			b.Errorf("%q was redriven to %q", t.UUID, t.topic)
		}
	}
	for _, id := range ids {
		visits := j.of(id)
		if last := visits[len(visits)-1]; last.Metadata[poison.KeyAttempts] != "1" || last.stage() == 0 {
			b.Errorf("%q was handled in stage %d after %q attempts since its redrive", id, last.stage(),
				last.Metadata[poison.KeyAttempts])
		}
	}
}
