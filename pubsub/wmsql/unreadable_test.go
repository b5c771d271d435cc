package wmsql_test

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	wsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/pubsub/wmsql"
)

// odd is a schema adapter that does what no adapter should do.
type odd struct {
	wsql.SchemaAdapter
	unmarshal func(wsql.Row, error) (wsql.Row, error)
}

func (o odd) UnmarshalMessage(row wsql.Scanner) (wsql.Row, error) {
	return o.unmarshal(o.SchemaAdapter.UnmarshalMessage(row))
}

// Feature D8: so is what an adapter of the user's own does not read, however it fails.
func TestAdapterFails(t *testing.T) {
	for name, fail := range map[string]func() (*message.Message, error){
		"error":      func() (*message.Message, error) { return nil, errors.New("unreadable") },
		"panic":      func() (*message.Message, error) { panic("unreadable") },
		"no message": func() (*message.Message, error) { return nil, nil },
	} {
		t.Run(name, func(t *testing.T) {
			onEach(t, func(t *testing.T, b *bench) {
				b.publish("a", "bad", "c")
				schema := odd{SchemaAdapter: b.stockSchema(), unmarshal: func(row wsql.Row, err error) (wsql.Row, error) {
					if err == nil && string(row.UUID) == "bad" {
						row.Msg, err = fail()
					}
					return row, err
				}}
				b.run(b.subscriber(func(c *wmsql.SubscriberConfig) { c.Schema = schema }), b.whole)
				b.drained()
				testkit.Equal(t, "effects", len(b.effects()["c"]), 2)
				b.each(b.topic+".invalid", func(msg *message.Message) {
					original := testkit.Must(poison.Decode(msg)).Original
					testkit.Equal(t, "letter of", original.UUID+" "+string(original.Payload), "bad payload of bad")
				})
				testkit.Equal(t, "letters", b.rows(b.topic+".invalid"), 1)
			})
		})
	}
}

// An adapter that panics anywhere else is a line in the log, and tried again.
type panicking struct {
	wsql.SchemaAdapter
	once sync.Once
}

func (p *panicking) SelectQuery(topic, group string, offsets wsql.OffsetsAdapter) wsql.Query {
	p.once.Do(func() { panic("select") })
	return p.SchemaAdapter.SelectQuery(topic, group, offsets)
}

func TestAdapterPanics(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		b.publish("a")
		log := &testkit.Log{}
		schema := &panicking{SchemaAdapter: b.stockSchema()}
		b.receive(b.messages(b.subscriber(func(c *wmsql.SubscriberConfig) { c.Schema, c.Logger = schema, log })),
			"a").Ack()
		errs := log.Errors()
		testkit.Check(t, len(errs) == 1 && strings.Contains(errs[0].String(), "select"), "%q", errs)
	})
}

// The queries of an adapter that is not watermill-sql's own decide, and the log says so.
func TestOwnQuery(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		log := &testkit.Log{}
		sub := b.subscriber(func(c *wmsql.SubscriberConfig) { c.Schema, c.Logger = b.embedded(), log })
		b.publish("a", "skip", "b")
		messages := b.messages(sub)
		b.receive(messages, "a").Ack()
		b.receive(messages, "b").Ack()
		said := func() int { return len(log.Lines(watermill.InfoLogLevel, "not watermill-sql's own")) }
		testkit.Equal(t, "lines", said(), 1)
		testkit.Check(t, testkit.Err(sub.Backlog(t.Context(), b.topic)) != nil, "it has a backlog")
		b.subscriber(func(c *wmsql.SubscriberConfig) { // by pointer it is watermill-sql's own all the same
			c.Logger = log
			if s, ok := b.stockSchema().(wsql.DefaultPostgreSQLSchema); ok {
				c.Schema = &s
			} else if s, ok := b.stockSchema().(wsql.DefaultMySQLSchema); ok {
				c.Schema = &s
			}
		})
		testkit.Equal(t, "lines", said(), 1)
	})
}
