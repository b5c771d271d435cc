package conformance

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/naming"
	"github.com/watermill-spillway/spillway/poison"
)

// Promises P1, P4: what stands in a stage topic with times and numbers that cannot be, is handled soon, in a stage that
// there is; when it fails it goes on from there, and in the end is set aside.
func (b *bench) hostileStages() {
	const delay = 200 * time.Millisecond
	var j journal
	var log testkit.Log
	b.startStaged(b.channel(b.staged(delay, 2*delay), logTo(&log)), b.noting(&j, func(_ int, msg *message.Message) error {
		if strings.HasPrefix(msg.UUID, "failing") {
			return errNever
		}
		return nil
	}))
	far, past := "9999-12-31T23:59:59.999999999Z", "2001-02-03T04:05:06Z"
	soon := time.Now().Add(time.Hour).UTC().Format(time.RFC3339Nano) // of a clock that is wrong
	hostile := map[string]message.Metadata{
		"nothing":       {},
		"garbage":       {poison.KeyRetryStage: "first", poison.KeyRetryDueAt: "\x00tomorrow"},
		"past":          {poison.KeyRetryStage: "1", poison.KeyRetryDueAt: past},
		"far":           {poison.KeyRetryStage: "1", poison.KeyRetryDueAt: far},
		"wrong clock":   {poison.KeyRetryStage: "1", poison.KeyRetryDueAt: soon},
		"held for ever": {poison.KeyRetryStage: "1", poison.KeyRetryDueAt: far, poison.KeyRetryHoldUntil: far},
		"held in vain":  {poison.KeyRetryStage: "1", poison.KeyRetryDueAt: past, poison.KeyRetryHoldUntil: "never"},
		"no such stage": {poison.KeyRetryStage: "99", poison.KeyRetryDueAt: past},
		"minus":         {poison.KeyRetryStage: "-1", poison.KeyRetryDueAt: past, poison.KeyAttempts: "-7"},
		"many attempts": {poison.KeyRetryStage: "1", poison.KeyAttempts: "99999999999999999999",
			poison.KeyAttemptHistory: "{"},
		"failing":     {poison.KeyRetryStage: "99", poison.KeyRetryDueAt: far},
		"failing too": {poison.KeyRetryStage: "-99", poison.KeyAttempts: "many", poison.KeyFirstFailedAt: far},
	}
	var good []string
	for id, metadata := range hostile {
		msg := newMessage(id)
		for key, value := range metadata {
			msg.Metadata.Set(key, value)
		}
		if err := b.live.Publish(b.stageTopic(delay), msg); err != nil {
			b.Fatal(err)
		}
		if !strings.HasPrefix(id, "failing") {
			good = append(good, id)
		}
	}
	b.untilApplied(good...)
	b.untilPlaced(2)
	b.wantOnce(good...)
	b.until("the log names the stage that was removed", func() bool {
		return log.Has("a stage that was removed", "stage", 99)
	})
	for _, v := range j.of("garbage") {
		if len(v.Metadata) == 0 {
			b.Error("its metadata are gone")
		}
	}
	for _, letter := range b.letters(b.dlq(), 2) {
		id := letter.Original.UUID
		if visits := j.of(id); len(visits) != 2 || visits[1].stage() != 2 || letter.Failure.Attempts < 2 {
			b.Errorf("%q was handled %d times and set aside after %d attempts", id, len(visits), letter.Failure.Attempts)
		}
	}
}

// Promises P1, P4: while a stage takes nothing, its messages are requeued: none is set aside, and none is lost. A
// stage topic that cannot be is an error at start-up.
func (b *bench) refusedStage() {
	var shut atomic.Bool
	shut.Store(true)
	var tries atomic.Int32
	var j journal
	b.startStaged(b.channel(b.staged(shortStage), func(c *spillway.Config) {
		c.Stages.Publisher = refusing{c.Stages.Publisher, func(topic string, msg *message.Message) error {
			tries.Add(1)
			return shutWhile(&shut)(topic, msg)
		}}
	}), b.noting(&j, func(stage int, msg *message.Message) error {
		if strings.HasPrefix(msg.UUID, "flaky") && stage == 0 {
			return errNotYet
		}
		return nil
	}))
	ids := append(numbered("flaky", 2), numbered("good", 2)...)
	b.ids(ids...)
	b.until("it was requeued", func() bool { return len(j.of(ids[0])) >= 2 && tries.Load() > 3 })
	if n := b.placed.Load(); n != 0 {
		b.Errorf("%d letters, and the messages could not even be tried again", n)
	}
	shut.Store(false)
	b.untilApplied(ids...)
	b.wantOnce(ids...)
	b.wantNeverEarly(&j, shortStage)
	for _, id := range ids[:2] {
		if visits := j.of(id); visits[len(visits)-1].Metadata[poison.KeyAttempts] != "1" {
			b.Errorf("%q tells of %q attempts: those after which it was requeued do not count", id,
				visits[len(visits)-1].Metadata[poison.KeyAttempts])
		}
	}
	if n := b.placed.Load(); n != 0 {
		b.Errorf("%d letters", n)
	}
	if b.target.BadTopic != "" {
		b.variant("cannot be", (*bench).missingStage)
	}
	if b.target.DeleteTopic != nil && b.target.Resumed > 0 {
		b.variant("deleted", (*bench).deletedStage)
	}
}

// deletedStage: the stage topic is deleted while messages are being published to it. They are requeued until it is
// there again. The stage's subscriber may make it again at once.
func (b *bench) deletedStage() {
	const failing = 5
	var j journal
	var begun atomic.Int32
	deleted := make(chan struct{})
	b.startStaged(b.channel(b.staged(shortStage), func(c *spillway.Config) {
		c.Stages.Publisher = refusing{c.Stages.Publisher, func(string, *message.Message) error {
			begun.Add(1)
			<-deleted
			return nil
		}}
	}), b.noting(&j, func(stage int, msg *message.Message) error {
		if strings.HasPrefix(msg.UUID, "flaky") && stage == 0 {
			return errNotYet
		}
		return nil
	}))
	ids := append(numbered("flaky", failing), numbered("good", 2)...)
	b.ids(ids...)
	b.untilApplied(ids[failing:]...)
	b.until("all are being published", func() bool { return begun.Load() == failing })
	b.target.DeleteTopic(b.T, b.stageTopic(shortStage))
	close(deleted)
	b.until("they were requeued, or handled", func() bool {
		return begun.Load() > 2*failing || len(b.effects()) == len(ids)
	})
	if len(b.effects()) < len(ids) {
		b.create(b.stageTopic(shortStage))
	}
	b.untilApplied(ids...)
	b.wantOnce(ids...)
	if n := b.placed.Load(); n != 0 {
		b.Errorf("%d letters", n)
	}
}

func (b *bench) missingStage() {
	var subscribers []message.Subscriber
	ch := b.channel(b.staged(shortStage), func(c *spillway.Config) {
		c.Stages.Naming = naming.Scheme{Stage: b.target.BadTopic + ".{topic}.{handler}"}
		next := c.Stages.Subscriber
		c.Stages.Subscriber = func(topic, group string) (message.Subscriber, error) {
			sub, err := next(topic, group)
			subscribers = append(subscribers, sub)
			return sub, err
		}
	})
	router := b.router()
	ch.Attach(router)
	live := b.target.Subscriber(b.T, b.group)
	_, err := ch.Stages().AddConsumerHandler(router, handlerName, b.topic, live, func(*message.Message) error {
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := router.Run(ctx); err == nil || !strings.Contains(err.Error(), b.target.BadTopic) {
		b.Errorf("with a stage topic that cannot be, Router.Run returned %v", err)
	}
	for _, sub := range append(subscribers, live) { // a router that did not start closes nothing
		if err := sub.Close(); err != nil {
			b.Error(err)
		}
	}
}
