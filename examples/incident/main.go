package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/examples/internal/crash"
	"github.com/watermill-spillway/spillway/internal/testing/services"
	"github.com/watermill-spillway/spillway/pubsub/wmkafka"
	"github.com/watermill-spillway/spillway/pubsub/wmsql"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// plan is what a run does.
type plan struct {
	messages, failing, rate int
	seed                    uint64
	broker                  string
	practice                io.Reader // a line of it deploys the fix; nil: the session is played
}

func main() {
	var p plan
	flag.IntVar(&p.messages, "messages", 5000, "messages to publish")
	flag.IntVar(&p.failing, "failing", 600, "messages that fail")
	flag.IntVar(&p.rate, "rate", 200, "letters per second that come back")
	flag.Uint64Var(&p.seed, "seed", 1, "seed of the order in which they fail")
	flag.StringVar(&p.broker, "broker", "kafka", "kafka, or sql for tables of PostgreSQL")
	practice := flag.Bool("practice", false, "leave the incident to you, with a terminal of your own")
	serving := flag.Bool("serve", false, "be the service; the program starts itself so")
	flag.Parse()
	if *serving {
		signal.Ignore(os.Interrupt) // a terminal sends it to both, and the parent knows what to do
		if err := crash.Consume(os.Stdin, serve); err != nil {
			fail(fmt.Errorf("service: %w", err))
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if *practice {
		p.practice = os.Stdin
	}
	r, _, err := run(ctx, p, os.Stdout)
	if err != nil {
		fail(err)
	}
	line, _ := json.Marshal(r) // a struct of numbers
	fmt.Printf("\n%s\n", line)
	if err := r.check(); err != nil && !*practice {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "incident:", err)
	os.Exit(1)
}

// run plays the whole incident, and prints what is typed and seen.
func run(ctx context.Context, p plan, out io.Writer) (r result, steps []step, err error) {
	begun := time.Now()
	patience := 5 * time.Minute
	if p.practice != nil {
		patience = 8 * time.Hour
	}
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errors.New("the time was up"))
	defer cancel()
	folder, err := os.MkdirTemp("", "spillway-incident-")
	if err != nil {
		return r, nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	binary, err := build(folder)
	if err != nil {
		return r, nil, err
	}
	in, err := newInput(p.messages, p.failing, p.seed)
	if err != nil {
		return r, nil, err
	}
	setting := crash.Setting{Topic: topic, Seed: p.seed}
	db, cleanUp, err := crash.OpenDatabase(&setting, crash.Postgres)
	if err != nil {
		return r, nil, err
	}
	defer func() { err = errors.Join(err, cleanUp()) }()
	address, close, err := p.publish(ctx, &setting, db, in)
	if err != nil {
		return r, nil, err
	}
	defer func() { err = errors.Join(err, close()) }()
	s := &session{
		terminal: &terminal{binary, environment(setting.DSN, address), out}, setting: setting, rate: p.rate, result: &r,
	}
	if s.serving, err = crash.Start(setting, "-serve"); err != nil {
		return r, nil, err
	}
	defer func() { err = errors.Join(err, s.serving.Stop()) }()
	store, err := letters.NewStore(ctx, db, letters.Config{Service: service})
	if err != nil {
		return r, nil, err
	}
	if s.all, err = campaigns.New(ctx, store, campaigns.Config{}); err != nil {
		return r, nil, err
	}
	applied := func(missing ...kind) error { return in.wait(ctx, db, store, missing) }
	fmt.Fprintf(out, "%d messages, of which %d fail\n", p.messages, p.failing)
	if err := applied(noRepository, noAssets, typo, cutShort); err != nil {
		return r, nil, err
	}
	if p.practice != nil {
		if err := s.practise(ctx, p.practice); err != nil {
			return r, nil, err
		}
		ctx = context.WithoutCancel(ctx) // Ctrl-C ended the practice, and not the counting
	} else if err := s.play(ctx, applied); err != nil {
		return r, s.steps, err
	}
	r.Commands = len(s.steps)
	err = judge(ctx, db, store, in, &r)
	r.Seconds = time.Since(begun).Round(100 * time.Millisecond).Seconds()
	return r, s.steps, err
}

// wait waits until all messages took effect but those of some kinds, and these are dead letters, or were discarded.
func (in *input) wait(ctx context.Context, db *sql.DB, store *letters.Store, missing []kind) error {
	failing := 0
	for _, k := range in.kinds {
		for _, m := range missing {
			if k == m {
				failing++
			}
		}
	}
	for {
		applied, err := effects(ctx, db)
		if err != nil {
			return err
		}
		n, err := store.Count(ctx, letters.Filter{Statuses: []letters.Status{letters.StatusWaiting,
			letters.StatusDiscarded}})
		if err != nil {
			return err
		}
		if len(applied) == len(in.messages)-failing && n >= failing {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d messages took effect and %d failed, of %d: %w", len(applied), n, len(in.messages),
				context.Cause(ctx))
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// publish makes the topic and fills it. It returns the broker's address for the command.
func (p plan) publish(ctx context.Context, s *crash.Setting, db *sql.DB,
	in *input) (address string, closing func() error, err error) {
	closing = func() error { return nil }
	var pub message.Publisher
	switch p.broker {
	case "sql":
		address = "sql"
		var tables *wmsql.Publisher
		if tables, err = wmsql.NewPublisher(ctx, db, wmsql.PublisherConfig{}); err == nil {
			pub, err = tables, tables.InitializeTopics(s.Topic)
		}
	case "kafka":
		if s.Brokers, err = services.Lookup("kafka"); err != nil {
			return "", nil, err
		}
		address = "kafka://" + s.Brokers
		s.Topic += "-" + strings.ToLower(rand.Text()[:8])
		if closing, err = createTopic(s); err == nil {
			pub, err = wmkafka.NewPublisher(strings.Split(s.Brokers, ","), wmkafka.PublisherConfig{InFlight: 100})
		}
	default:
		return "", nil, fmt.Errorf("-broker %q: give kafka or sql", p.broker)
	}
	if err == nil {
		err = errors.Join(pub.Publish(s.Topic, in.messages...), pub.Close())
	}
	if err != nil {
		return "", nil, errors.Join(err, closing())
	}
	if p.broker == "sql" {
		sub, err := wmsql.NewSubscriber(ctx, db, wmsql.SubscriberConfig{ConsumerGroup: group})
		if err == nil {
			err = errors.Join(sub.SubscribeInitialize(s.Topic), sub.Close())
		}
		return address, closing, err
	}
	return address, closing, nil
}

// createTopic makes a topic with one partition, and returns what removes it.
func createTopic(s *crash.Setting) (remove func() error, err error) {
	admin, err := sarama.NewClusterAdmin(strings.Split(s.Brokers, ","), nil)
	if err != nil {
		return nil, fmt.Errorf("connect to Kafka at %s: start it with \"make services\", or correct SPILLWAY_KAFKA: %w",
			s.Brokers, err)
	}
	remove = func() error {
		_ = admin.DeleteConsumerGroup(s.Topic) // Kafka forgets it in a week
		return errors.Join(admin.DeleteTopic(s.Topic), admin.Close())
	}
	return remove, admin.CreateTopic(s.Topic, &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: -1}, false)
}
