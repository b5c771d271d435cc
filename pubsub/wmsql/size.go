package wmsql

import (
	"fmt"
	"strings"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database"
)

const (
	// statementOverhead is room for what a statement has beside its long arguments.
	statementOverhead = 4 << 10
	// letterRoom is what a dead letter may add to its message: poison.MaxAdded in JSON, and then some.
	letterRoom = 64 << 10
	// sinkRoom is what other places for dead letters on the same server keep for themselves, such as letters.Store.
	sinkRoom = 64 << 10
	// maxOurs bounds how much of the room may be taken up already by metadata that looks like ours: it may be forged.
	maxOurs = letterRoom - 16<<10
)

// statements are what writes the messages: one, or, where it would be long, several for one transaction. A message is
// refused as too large if it, or the dead letter that may come of it, cannot be written: the server would close the
// connection, and the transaction would end with it, on every attempt anew.
func (p *Publisher) statements(topic string, messages []*message.Message, as form) ([]wsql.Query, error) {
	carried := make([]*message.Message, len(messages))
	for i, msg := range messages {
		var err error
		if carried[i], err = carry(msg, as); err != nil {
			return nil, err
		}
	}
	query, err := p.config.Schema.InsertQuery(topic, carried)
	if err != nil {
		return nil, err
	}
	p.asTexts(query.Args)
	limit, size := p.dialect.maxStatement, sizeOf(query)
	switch {
	case len(messages) > 1 && 2*size > limit: // a driver may write arguments into the statement, where bytes take two
		half := len(messages) / 2
		first, err := p.statements(topic, messages[:half], as)
		if err != nil {
			return nil, err
		}
		second, err := p.statements(topic, messages[half:], as)
		return append(first, second...), err
	case size > limit, size+p.dialect.liveRoom() > limit && oursIn(messages[0]) == 0:
		return nil, p.dialect.tooLarge(size)
	}
	return []wsql.Query{query}, nil
}

const argumentsPerRow = 3 // of watermill-sql's own adapters: id, payload, metadata

// texts are the arguments of a row that are no bytes to PostgreSQL.
func (d *dialect) texts(schema wsql.SchemaAdapter) []int {
	switch {
	case d.kind != database.Postgres:
		return nil
	case strings.EqualFold(payloadType(schema), d.binary):
		return []int{2}
	}
	return []int{1, 2}
}

func (p *Publisher) asTexts(args []any) {
	for row := 0; row+argumentsPerRow <= len(args); row += argumentsPerRow {
		for _, i := range p.texts {
			if text, ok := args[row+i].([]byte); ok && text != nil {
				args[row+i] = string(text)
			}
		}
	}
}

func (d *dialect) tooLarge(size int) error {
	return fmt.Errorf("wmsql: the statement has %d bytes; %s takes %d, of which %d are kept for the dead letter of the "+
		"message; publish a smaller message: %w", size, d.name, d.maxStatement, d.liveRoom(), classify.ErrTooLarge)
}

// liveRoom is what a message that is no dead letter must leave.
func (d *dialect) liveRoom() int { return min(letterRoom+sinkRoom, d.maxStatement/2) }

func sizeOf(query wsql.Query) int {
	size := len(query.Query) + statementOverhead
	for _, arg := range query.Args {
		size += lengthOf(arg)
	}
	return size
}

// lengthOf is the length of an argument that may be long, or 0.
func lengthOf(arg any) int {
	switch value := arg.(type) {
	case []byte:
		return len(value)
	case message.Payload:
		return len(value)
	case string:
		return len(value)
	}
	return 0
}

// oursIn is how much of the room for a dead letter a message has used already: as a letter, or before it was redriven.
func oursIn(msg *message.Message) int {
	size := 0
	for key, value := range msg.Metadata {
		for _, prefix := range []string{"x-original-", "x-failure-", "x-attempt", "x-first-failed", "x-last-failed",
			"x-retry-", "x-redrive"} {
			if strings.HasPrefix(key, prefix) {
				size += len(key) + len(value)
				break
			}
		}
	}
	return min(size, maxOurs)
}

// payloadType is the type of payloads in the tables of watermill-sql's own adapter.
func payloadType(schema wsql.SchemaAdapter) string {
	if typed, ok := schema.(interface{ PayloadColumnType(string) string }); ok {
		return typed.PayloadColumnType("")
	}
	return ""
}
