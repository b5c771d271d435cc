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
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Broker is what the story needs of a broker.
type Broker struct {
	// Live takes the deliveries, and the letters on their way back.
	Live message.Publisher
	// Summaries are the consumer's outputs.
	Summaries <-chan *message.Message
	// Backlog is how many messages are not acked, in the topic and in its dead-letter topics. It looks at the topic
	// first: what leaves the topic in between is then seen where it arrives.
	Backlog func(context.Context) (int, error)
	// Holders is how many consumers hold messages that the backlog does not show. Where it shows all, it is nil.
	Holders func(context.Context) (int, error)
	// DB is where the topics are, if they are tables, and then effects and letters are there too. See OpenDatabase.
	DB *sql.DB
}

type history struct {
	Plan
	Broker
	db         *sql.DB
	letters    *letters.Store
	tally      *webhooks.Tally
	consumer   *Process // nil while there is none
	quietSince time.Time
}

// Tell runs the story of a plan that is ready.
func Tell(ctx context.Context, plan *Plan, broker Broker) (result webhooks.Result, err error) {
	deliveries, _ := webhooks.Prepare(plan.events, plan.Seed)
	s := &history{Plan: *plan, Broker: broker, tally: &webhooks.Tally{}}
	if s.db = broker.DB; s.db == nil {
		var cleanUp func() error
		if s.db, cleanUp, err = OpenDatabase(&s.Setting, ""); err != nil {
			return result, err
		}
		defer func() { err = errors.Join(err, cleanUp()) }()
	}
	if s.letters, err = letters.NewStore(context.Background(), s.db, letters.Config{Service: "shop"}); err != nil {
		return result, err
	}
	go s.receive()
	defer func() { err = errors.Join(err, s.end()) }() // before the database goes

	fmt.Printf("%d events in %d deliveries to topic %s, faults of seed %d, effects and letters in %s\n",
		len(s.events), len(deliveries), s.Topic, s.Seed, s.Database())
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

func (s *history) receive() {
	for msg := range s.Summaries {
		_ = s.tally.Receive(msg) // it notes, and has nothing to refuse
		msg.Ack()
	}
}

// crash lets the consumer store some events, kills it, and starts it again.
func (s *history) crash(ctx context.Context) error {
	if err := s.begin(); err != nil {
		return err
	}
	for kill := 1; kill <= s.Kills; kill++ {
		stored, err := s.reach(ctx, kill*s.KillAt)
		if err != nil {
			return err
		}
		if err := s.kill(); err != nil {
			return err
		}
		fmt.Printf("The consumer was killed (SIGKILL) when %d events were stored; it is started again.\n", stored)
		if err := s.begin(); err != nil {
			return err
		}
	}
	return nil
}
