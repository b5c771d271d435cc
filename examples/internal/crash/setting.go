// Package crash is the story that the examples on real brokers share: a process of its own consumes the events, is
// killed in the middle, started again, replaced by a repaired one, and in the end nothing is lost and nothing happened
// twice. Whatever the parent must know of a process that dies is in the database or on the broker.
package crash

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/examples/internal/webhooks"
	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/naming"
)

// Setting is what the consuming process is told, in the first line of its standard input: it names a database, and
// arguments can be read by every user of the machine.
type Setting struct {
	Brokers string // their address
	Topic   string
	Driver  string // of the database
	DSN     string
	Input   string // file of events
	Seed    uint64
	Fixed   bool // the fix is deployed
}

// Summaries is the topic of the outputs.
func (s *Setting) Summaries() string { return s.Topic + ".summaries" }

// DeadLetters are the topics where dead letters go.
func (s *Setting) DeadLetters() []string {
	return []string{
		naming.Scheme{}.DeadLetterTopic(naming.Source{Topic: s.Topic, Class: classify.ClassPermanent}),
		naming.Scheme{}.DeadLetterTopic(naming.Source{Topic: s.Topic, Class: classify.ClassInvalid}),
	}
}

// Topics are all that there are after a run, and to be removed.
func (s *Setting) Topics() []string {
	all := []string{s.Topic, s.Summaries()}
	for _, letters := range s.DeadLetters() {
		all = append(all, letters, naming.Scheme{}.ParkedTopic(letters))
	}
	return all
}

// Consumer is what the consuming process works with.
type Consumer struct {
	Setting
	DB     *sql.DB
	Faults *webhooks.Faults
}

// Consume reads the setting and calls run, whose context ends with in: so the process never outlives its parent.
func Consume(in io.Reader, run func(ctx context.Context, c *Consumer) error) (err error) {
	lines := bufio.NewReader(in)
	line, err := lines.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("read the setting: %w", err)
	}
	c := &Consumer{}
	if err := json.Unmarshal(line, &c.Setting); err != nil {
		return fmt.Errorf("read the setting: %w", err)
	}
	events, err := webhooks.Load(c.Input)
	if err != nil {
		return err
	}
	_, c.Faults = webhooks.Prepare(events, c.Seed)
	c.Faults.Fixed.Store(c.Fixed)
	c.Faults.Bind = c.Bind
	if c.DB, err = sql.Open(c.Driver, c.DSN); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.DB.Close()) }()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, lines)
		cancel()
	}()
	if err = run(ctx, c); ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil // the parent ended it before it had begun
	}
	return err
}

// Keys is where the consumer keeps which events it has applied.
func (c *Consumer) Keys(ctx context.Context) (idempotency.Store, error) {
	return idempotency.NewStore(ctx, c.DB, "shop")
}
