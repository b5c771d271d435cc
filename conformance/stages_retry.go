package conformance

import (
	"slices"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/poison"
)

// Feature R5: what fails for the moment comes back after each delay, and never early; what is behind it does not wait;
// what no stage helps is set aside with its whole history.
func (b *bench) stagedRetry() {
	b.variant("comes back", func(b *bench) { b.comesBack() })
	b.variant("live goes on", (*bench).liveGoesOn)
}

// liveGoesOn has messages wait for an hour. Those behind take effect at once.
func (b *bench) liveGoesOn() {
	var j journal
	waiting, good := numbered("waiting", 3), numbered("good", 10)
	b.startStaged(b.channel(b.staged(time.Hour)), b.noting(&j, func(_ int, msg *message.Message) error {
		if slices.Contains(waiting, msg.UUID) {
			return errNotYet
		}
		return nil
	}))
	b.ids(slices.Concat(waiting, good)...)
	b.untilApplied(good...)
	b.wantOnce(good...)
	b.wantNoLetters()
}

func (b *bench) comesBack(change ...func(*spillway.Config)) {
	delays := []time.Duration{200 * time.Millisecond, time.Second}
	hopeless, flaky, good := numbered("hopeless", 3), numbered("flaky", 5), numbered("good", 10)
	var j journal
	b.startStaged(b.channel(append([]func(*spillway.Config){b.staged(delays...)}, change...)...),
		b.noting(&j, func(stage int, msg *message.Message) error {
			switch {
			case strings.HasPrefix(msg.UUID, "hopeless"):
				return classify.Transient(errNever)
			case strings.HasPrefix(msg.UUID, "flaky") && stage < 2:
				return errNotYet
			}
			return nil
		}))
	b.ids(slices.Concat(hopeless, flaky, good)...)
	b.untilApplied(append(flaky, good...)...)
	b.untilPlaced(3)
	b.wantOnce(append(flaky, good...)...)
	b.wantNeverEarly(&j, delays...)
	for _, id := range append(flaky, hopeless...) {
		if last := j.of(id)[len(j.of(id))-1]; last.stage() != 2 || last.Metadata[poison.KeyAttempts] != "2" {
			b.Errorf("%q came the last time in stage %d, after %s attempts", id, last.stage(), last.Metadata[poison.KeyAttempts])
		}
	}
	for _, l := range b.letters(b.dlq(), 3) {
		f := l.Failure
		if !slices.Contains(hopeless, l.Original.UUID) || f.Reason != classify.ReasonTransientMaxRetries || f.Attempts != 3 ||
			len(f.History) != 3 {
			b.Errorf("set aside: %q with reason %q after %d attempts, of which it tells %v", l.Original.UUID, f.Reason,
				f.Attempts, f.History)
		}
		if waits := f.LastFailedAt.Sub(f.FirstFailedAt); waits < delays[0]+delays[1] {
			b.Errorf("%q failed first at %s and last at %s", l.Original.UUID, f.FirstFailedAt, f.LastFailedAt)
		}
	}
}

// Feature R6: how long each message waits is drawn by lot, and never below the delay nor above delay and jitter.
func (b *bench) stagedJitter() {
	const delay, jitter, n = 200 * time.Millisecond, 0.5, 40
	const most = delay + time.Duration(jitter*float64(delay))
	var j journal
	var l ledger
	b.startStaged(b.channel(b.staged(delay), l.keep, func(c *spillway.Config) { c.Stages.Jitter = jitter }),
		b.noting(&j, func(stage int, _ *message.Message) error {
			if stage == 0 {
				return errNotYet
			}
			return nil
		}))
	ids := numbered("id", n)
	b.ids(ids...)
	b.untilApplied(ids...)
	b.wantOnce(ids...)
	b.wantNeverEarly(&j, delay)
	shortest, longest := time.Hour, time.Duration(0)
	for id, tooks := range l.byID() {
		due, failed := tooks[0].stage().DueAt, j.of(id)[0].ended
		if wait := due.Sub(failed); wait < delay || due.Sub(tooks[0].at) > most {
			b.Errorf("%q is due %s after it failed, and is to wait %s to %s", id, wait, delay, most)
		}
		shortest, longest = min(shortest, due.Sub(tooks[0].at)), max(longest, due.Sub(tooks[0].at))
		for _, v := range j.of(id) {
			if v.stage() == 1 && v.begun.Before(due) {
				b.Errorf("%q was handled at %s, and due at %s", id, v.begun, due)
			}
		}
	}
	if longest-shortest < most-delay-(most-delay)/2 {
		b.Errorf("all of %d messages wait %s to %s: nothing is drawn", n, shortest, longest)
	}
}
