package notify

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/watermill-spillway/spillway/internal/order/sequence"
)

// maxHeld is the number of held keys that are looked at, those that wait longest.
const maxHeld = 100

// pollSequences looks at the keys whose messages are parked. Those that are late have one notice for each partition: it
// is about the owner, and not about them.
func (r *running) pollSequences(ctx context.Context) error {
	if r.n.parked == nil || !r.n.wants(SequenceHeld) && !r.n.wants(SequenceLate) {
		return nil
	}
	asked, cancel := context.WithTimeout(ctx, r.n.pace.answer)
	defer cancel()
	all, err := r.n.parked.Standing(asked)
	if err != nil {
		return err
	}
	held := 0
	for _, s := range all {
		if held += s.Held; !s.IsLate() {
			continue
		}
		if err := r.lasts(ctx, SequenceLate, fmt.Sprintf("%s\n%s\n%d", s.Group, s.Topic, s.Partition),
			time.Now().Add(-s.Overdue), aboutLate(s)); err != nil {
			return err
		}
	}
	if held == 0 || !r.n.wants(SequenceHeld) {
		return nil
	}
	keys, err := r.n.parked.Held(asked, maxHeld)
	if err != nil {
		return err
	}
	for _, p := range keys {
		if err := r.lasts(ctx, SequenceHeld, fmt.Sprint(p.Seq), time.Time{},
			aboutHeld(r.n.parked.Service(), p)); err != nil {
			return err
		}
	}
	return nil
}

func aboutLate(s sequence.Standing) about {
	return about{Topic: s.Topic, Reason: fmt.Sprintf("partition %d", s.Partition),
		Description: fmt.Sprintf("%d messages of %d keys are parked for the group %s", s.Messages, s.Sequences,
			s.Group)}
}

func aboutHeld(service string, p sequence.Parked) about {
	a := about{Topic: p.Topic, Handler: strings.TrimPrefix(p.Consumer, service+"/"),
		Description: fmt.Sprintf("message %s, partition %d, offset %d; %d parked", p.First, p.Partition, p.Position,
			p.Messages)}
	if p.Key != nil {
		a.Subject = *p.Key
	}
	return a
}
