package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/naming"
)

// setting configures a consuming process. It is the first line of the process's standard input: it holds passwords, and
// every user of the machine can read arguments.
type setting struct {
	Broker  string // kafka, rabbitmq, postgres or mariadb
	Address string // of the broker; that of tables is the database's
	Driver  string // of the database: pgx or mysql
	DSN     string // of the database
	Topic   string
	Seed    uint64
	Debug   bool // log each retry
	// Downstream is the address that the handler calls, if outages are a part of the campaign. A breaker of outages is
	// then on.
	Downstream string
}

const (
	handlerName = "work"
	slots       = 2 // consumers
)

var delays = []time.Duration{time.Second, 3 * time.Second}

func (s *setting) outputs() string { return s.Topic + ".done" }

// onTables reports whether the broker is the database.
func (s *setting) onTables() bool { return len(serversOf[s.Broker]) == 1 }

// reader is the group in which the driver reads a topic of letters or outputs.
func (s *setting) reader(topic string) string { return topic + "-account" }

// group is the consumer group of the live topic, and of whatever else belongs to this campaign alone.
func (s *setting) group() string { return s.Topic }

// stagesGroup is the consumer group of all stages.
func (s *setting) stagesGroup() string { return s.Topic + "-stages" }

// deadLetters are the topics where letters go.
func (s *setting) deadLetters() []string {
	return []string{
		naming.Scheme{}.DeadLetterTopic(naming.Source{Topic: s.Topic, Class: classify.ClassPermanent}),
		naming.Scheme{}.DeadLetterTopic(naming.Source{Topic: s.Topic, Class: classify.ClassInvalid}),
	}
}

// stageTopics are where messages wait, or with a store where they come back.
func (s *setting) stageTopics() (topics []string) {
	waits := delays
	if s.onTables() {
		waits = []time.Duration{0} // the delay store's
	}
	for _, delay := range waits {
		topics = append(topics, naming.Scheme{}.StageTopic(naming.Source{Topic: s.Topic, Handler: handlerName,
			Delay: delay}))
	}
	return topics
}

// topics are all that there are after a run, and to be removed.
func (s *setting) topics() []string {
	all := append([]string{s.Topic, s.outputs()}, s.stageTopics()...)
	for _, letters := range s.deadLetters() {
		all = append(all, letters, naming.Scheme{}.ParkedTopic(letters), naming.Scheme{}.QuarantineTopic(letters))
	}
	return all
}

// consumeMain is the main of a consuming process: it ends with SIGTERM, and with its parent, in order.
func consumeMain() error {
	signal.Ignore(os.Interrupt) // a terminal sends it to all, and the parent knows what to do
	lines := bufio.NewReader(os.Stdin)
	line, err := lines.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("read the setting: %w", err)
	}
	var s setting
	if err := json.Unmarshal(line, &s); err != nil {
		return fmt.Errorf("read the setting: %w", err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	go func() {
		_, _ = io.Copy(io.Discard, lines)
		stop()
	}()
	return consume(ctx, s, func(router *message.Router) {
		select {
		case <-router.Running():
			fmt.Println("up")
		case <-ctx.Done():
		}
	})
}
