package conformance

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/middleware/breaker"
	"github.com/watermill-spillway/spillway/poison"
)

// Feature R10: what a message is survives every stage, and so does what only the broker's own client can give it; its
// attempts are added up, and known to the handler (R18); duplicates are recognised in whatever stage they are.
func (b *bench) stagesKeepMessage() {
	b.variant("the message", (*bench).keptInStages)
	b.variant("its duplicates", (*bench).duplicatesInStages)
	if _, pinned := b.target.Pins["H3"]; !pinned {
		b.variant("the broker's own", (*bench).brokersOwnInStages)
	}
}

func (b *bench) keptInStages() {
	const each = 2 // attempts in a stage
	sent := newMessage("original")
	sent.Metadata.Set("empty", "")
	sent.Metadata.Set("x-own", "ü")
	var j journal
	var made []spillway.Attempt // with j.mu
	noting := b.noting(&j, func(int, *message.Message) error { return errNever })
	b.startStaged(b.channel(b.staged(shortStage, shortStage*2), func(c *spillway.Config) { c.Retry.Attempts = each }),
		func(msg *message.Message) ([]*message.Message, error) {
			j.mu.Lock()
			made = append(made, spillway.AttemptOf(msg.Context()))
			j.mu.Unlock()
			defer ruin(msg)
			return noting(msg)
		})
	b.publish(sent.Copy())
	b.untilPlaced(1)
	attempts := []string{"", "2", "4"}
	seen := map[int]int{}
	for _, v := range j.of(sent.UUID) {
		b.wantSame("an attempt", v.Message, sent)
		n := v.stage()
		seen[n]++
		if v.Metadata[poison.KeyAttempts] != attempts[n] {
			b.Errorf("in stage %d the message tells of %q attempts", n, v.Metadata[poison.KeyAttempts])
		}
		if o := poison.Read(v.Message).Origin; n > 0 &&
			(o.Topic != b.topic || o.Handler != handlerName || o.MessageID != sent.UUID) {
			b.Errorf("in stage %d the message's origin is %+v", n, o)
		}
	}
	if seen[1] != each || seen[2] != each {
		b.Errorf("attempts by stage: %v", seen)
	}
	l := b.letter(b.dlq())
	b.wantSame("the letter", l.Original, sent)
	for i, a := range made {
		if first := a.FirstFailed.Sub(l.Failure.FirstFailedAt).Abs(); a.Number != i+1 || a.Last != (i+1 == 3*each) || a.FirstFailed.IsZero() != (i == 0) ||
			i > 0 && first > time.Millisecond {
			b.Errorf("attempt %d is told as %+v, and the message first failed at %s", i+1, a, l.Failure.FirstFailedAt)
		}
	}
	if f := l.Failure; f.Attempts != 3*each || len(f.History) != 3*each ||
		f.LastFailedAt.Sub(f.FirstFailedAt) < 3*shortStage {
		b.Errorf("set aside after %d attempts, from %s to %s: %v", f.Attempts, f.FirstFailedAt, f.LastFailedAt, f.History)
	}
	if l.Origin.Topic != b.topic || l.Origin.Handler != handlerName {
		b.Errorf("set aside with origin %+v", l.Origin)
	}
	visits := j.of(sent.UUID)
	staged := visits[len(visits)-1].Metadata
	for _, key := range b.target.Origins {
		if staged[key] == "" && staged[key+poison.Base64Suffix] == "" {
			b.Errorf("in a stage %s is missing", key)
		}
	}
}

// duplicatesInStages: one copy takes effect in a stage, and the others come to the live topic and to a stage.
func (b *bench) duplicatesInStages() {
	var j journal
	id := b.group + "-twice" // the receiver knows it by the handler's name, which is every bench's
	late := shortStage * 2
	ch := b.channel(b.staged(shortStage, late), byHandler)
	b.startStaged(ch, b.noting(&j, func(stage int, _ *message.Message) error {
		if stage == 0 {
			return errNotYet
		}
		return nil
	}))
	b.ids(id, id)
	b.untilApplied(id)
	b.until("the other in a stage was absorbed", func() bool { return b.duplicate.Load() >= 1 })
	b.ids(id)
	b.until("the one in the live topic was absorbed", func() bool { return b.duplicate.Load() >= 2 })
	b.wantOnce(id)
	if n := b.placed.Load(); n != 0 {
		b.Errorf("%d letters", n)
	}
}

// brokersOwnInStages sends what only the broker's own client can send through two stages.
func (b *bench) brokersOwnInStages() {
	for _, hostile := range b.target.Hostile {
		if b.target.Pins["H3/"+hostile.Name] != "" {
			continue
		}
		b.variant(hostile.Name, func(b *bench) {
			var j journal
			stop := b.startStaged(b.channel(b.staged(shortStage, shortStage)),
				b.noting(&j, func(stage int, _ *message.Message) error {
					if stage < 2 {
						return errNotYet
					}
					return nil
				}))
			defer stop()
			hostile.Publish(b.T, b.topic)
			b.until("it went through, or could not be read", func() bool {
				visits := j.of("")
				return b.placed.Load() > 0 || len(visits) > 0 && visits[len(visits)-1].stage() == 2
			})
			visits := j.of("")
			if len(visits) == 0 {
				return // which is another row's business
			}
			first, last := visits[0].Message, visits[len(visits)-1].Message
			b.wantSame("in the last stage", last, first)
			if hostile.Check != nil {
				hostile.Check(b.T, last)
			}
		})
	}
}

// redeliversAfter is the redelivery time of row R5b: longer than a busy machine stands still.
const redeliversAfter = 6 * time.Second

// Feature R5b: a message that is held for longer than the broker's redelivery time, in a stage or in an outage, becomes
// one letter.
func (b *bench) heldTooLong() {
	if b.target.Redelivers == nil {
		return // the broker redelivers at the end of a session alone
	}
	b.together(map[string]func(*bench){
		"in stages": func(b *bench) { b.multipliesNone(b.redelivering, b.inStages) },
		"in stages, time not known": func(b *bench) {
			b.multipliesNone(func(group string) message.Subscriber { return muted(b.redelivering(group)) }, b.inStages)
		},
		"in an outage": func(b *bench) { b.multipliesNone(b.redelivering, b.inOutage) },
		"in an outage, time not known": func(b *bench) {
			b.multipliesNone(func(group string) message.Subscriber { return muted(b.redelivering(group)) }, b.inOutage)
		},
	})
}

func (b *bench) redelivering(group string) message.Subscriber {
	return b.target.Redelivers(b.T, group, redeliversAfter)
}

// mute is a subscriber that does not say its redelivery time, and hides what it is.
type mute struct {
	subscribe func(context.Context, string) (<-chan *message.Message, error)
	end       func() error
}

func muted(sub message.Subscriber) message.Subscriber { return mute{sub.Subscribe, sub.Close} }

func (m mute) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	return m.subscribe(ctx, topic)
}

func (m mute) Close() error { return m.end() }

// multipliesNone runs messages that fail for good, and counts their calls and letters.
func (b *bench) multipliesNone(sub func(group string) message.Subscriber,
	how func(func(string) message.Subscriber) (*spillway.Channel, func() error)) {
	b.create(b.topic, b.outs)
	b.dead, b.live = b.publisher(), b.publisher()
	ch, fails := how(sub)
	var mu sync.Mutex
	inside := map[string]bool{}
	handle := func(msg *message.Message) ([]*message.Message, error) {
		mu.Lock()
		if inside[msg.UUID] {
			b.Errorf("%q is handled twice at a time", msg.UUID)
		}
		inside[msg.UUID] = true
		mu.Unlock()
		defer func() {
			mu.Lock()
			defer mu.Unlock()
			inside[msg.UUID] = false
		}()
		return nil, fails()
	}
	router := b.router()
	ch.Attach(router)
	if ch.Stages() == nil {
		router.AddHandler(handlerName, b.topic, sub(b.group), b.outs, b.target.Publisher(b.T), handle)
	} else if _, err := ch.Stages().AddHandler(router, handlerName, b.topic, sub(b.group), b.outs, b.target.Publisher(b.T),
		handle); err != nil {
		b.Fatal(err)
	}
	stop := b.run(router)
	const messages = 10
	b.ids(numbered("held", messages)...)
	b.untilPlaced(messages)
	time.Sleep(redeliversAfter + time.Second) // what is to come again has come
	stop()
	if n := b.placed.Load(); n != messages {
		b.Errorf("%d letters of %d messages", n, messages)
	}
	letters := map[string]int{}
	for _, l := range b.letters(b.dlq(), messages) {
		letters[l.Original.UUID]++
	}
	if len(letters) != messages {
		b.Errorf("letters of %d messages, want %d: %v", len(letters), messages, letters)
	}
}

// inStages has messages fail in stages of which one is longer than the redelivery time.
func (b *bench) inStages(sub func(string) message.Subscriber) (*spillway.Channel, func() error) {
	return b.channel(b.staged(500*time.Millisecond, 10*time.Second), func(c *spillway.Config) {
		c.Stages.Subscriber = func(_, group string) (message.Subscriber, error) { return sub(group), nil }
	}), func() error { return errNotYet }
}

// inOutage has the breaker hold messages for longer than the redelivery time.
func (b *bench) inOutage(func(string) message.Subscriber) (*spillway.Channel, func() error) {
	back := time.Now().Add(3 * redeliversAfter)
	return b.channel(func(c *spillway.Config) { c.Breaker = &breaker.Config{} }), func() error {
		if time.Now().Before(back) {
			return classify.Unavailable(fmt.Errorf("away until %s", back))
		}
		return classify.Permanent(errNever)
	}
}
