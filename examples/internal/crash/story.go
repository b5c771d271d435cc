package crash

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/examples/internal/webhooks"
	"github.com/watermill-spillway/spillway/redrive"
)

// Broker is what the story needs of a broker.
type Broker struct {
	// Live takes the deliveries, and the letters on their way back.
	Live message.Publisher
	// Summaries are the consumer's outputs.
	Summaries <-chan *message.Message
	// Backlog is how many messages nobody has acked, in the topic and in its dead-letter topics. It looks at the topic
	// first: what leaves the topic in between is then seen where it arrives.
	Backlog func(context.Context) (int, error)
}

// Plan says what is published, and when the consumer is killed: when so many events are stored. 0 is a third of them.
type Plan struct {
	Setting
	KillAt int
}

type story struct {
	Plan
	Broker
	db       *sql.DB
	letters  *redrive.Store
	tally    *webhooks.Tally
	consumer *process
}

// Tell runs the story.
func Tell(ctx context.Context, plan Plan, broker Broker) (result webhooks.Result, err error) {
	events, err := webhooks.Load(plan.Input)
	if err != nil {
		return result, err
	}
	deliveries, _ := webhooks.Prepare(events, plan.Seed)
	if plan.KillAt == 0 {
		plan.KillAt = len(events) / 3
	}
	s := &story{Plan: plan, Broker: broker, tally: &webhooks.Tally{}}
	db, cleanUp, err := openDatabase(&s.Setting)
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, cleanUp()) }()
	s.db = db
	if s.letters, err = redrive.NewStore(redrive.StoreConfig{DB: db}); err != nil {
		return result, err
	}
	go s.receive()
	defer func() { // before the database goes
		if s.consumer != nil {
			err = errors.Join(err, s.consumer.stop())
		}
	}()

	fmt.Printf("%d events in %d deliveries to topic %s, faults of seed %d, database %s\n", len(events), len(deliveries), s.Topic, s.Seed, s.Driver)
	if err := s.Live.Publish(s.Topic, deliveries...); err != nil {
		return result, err
	}
	if err := s.crash(ctx); err != nil {
		return result, err
	}
	if err := s.settle(ctx, "handled", len(deliveries)); err != nil {
		return result, err
	}
	if err := s.tally.Before(ctx, &result, s.db, s.letters); err != nil {
		return result, err
	}
	if err := webhooks.Table(ctx, os.Stdout, "Dead letters by cause", s.letters); err != nil {
		return result, err
	}
	if err := s.deploy(ctx, &result); err != nil {
		return result, err
	}
	return result, s.conclude(ctx, &result, deliveries)
}

func (s *story) receive() {
	for msg := range s.Summaries {
		_ = s.tally.Receive(msg) // it notes, and has nothing to refuse
		msg.Ack()
	}
}

// crash lets the consumer store some events, kills it, and starts it again.
func (s *story) crash(ctx context.Context) (err error) {
	if s.consumer, err = start(s.Setting); err != nil {
		return err
	}
	for {
		stored, err := applied(s.db)
		if err := errors.Join(err, ctx.Err(), s.consumer.alive()); err != nil {
			return err
		}
		if stored < s.KillAt {
			time.Sleep(2 * time.Millisecond)
			continue
		}
		killed := s.consumer
		s.consumer = nil
		if err := killed.kill(); err != nil {
			return err
		}
		fmt.Printf("The consumer was killed (SIGKILL) when %d events were stored; it is started again.\n", stored)
		s.consumer, err = start(s.Setting)
		return err
	}
}
