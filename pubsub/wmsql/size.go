package wmsql

import (
	"bytes"
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

// statements are what writes the messages: one, or, where the server would close the connection on one so long, several
// for one transaction. The transaction would end with the connection, on every attempt anew. A message is refused as
// too large if it, or the dead letter that may come of it, cannot be written.
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
	fits := size+p.dialect.liveRoom() <= limit
	switch {
	case fits && (2*size <= limit || p.dialect.written(query)+statementOverhead <= limit):
		return []wsql.Query{query}, nil
	case len(messages) > 1:
		half := len(messages) / 2
		first, err := p.statements(topic, messages[:half], as)
		if err != nil {
			return nil, err
		}
		second, err := p.statements(topic, messages[half:], as)
		return append(first, second...), err
	case !fits && oursIn(messages[0]) == 0, !p.inPieces && size > limit:
		return nil, p.dialect.tooLarge(size)
	case p.inPieces:
		return p.pieces(topic, messages[0], carried[0])
	default: // in bytes it fits; a driver that writes arguments into the statement says itself what does not
		return []wsql.Query{query}, nil
	}
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

// pieces write one message: the payload in as many statements as it takes, and the metadata in another. So a message
// that came in one statement, from whatever publisher, has a letter that can be written.
func (p *Publisher) pieces(topic string, msg, row *message.Message) ([]wsql.Query, error) {
	whole, err := p.config.Schema.InsertQuery(topic, message.Messages{row})
	if err != nil || len(whole.Args) != 3 {
		return nil, fmt.Errorf("wmsql: the adapter's statement has %d arguments, not 3: %w", len(whole.Args), err)
	}
	limit := p.dialect.maxStatement
	metadata := lengthOf(whole.Args[2])
	if metadata+p.dialect.room()-oursIn(msg) > limit || len(row.Payload) > limit {
		return nil, p.dialect.tooLarge(sizeOf(whole))
	}
	payload := []byte(row.Payload)
	first := payload
	if p.dialect.written(wsql.Query{Args: []any{payload}})+statementOverhead > limit {
		first = payload[:min(len(payload), (limit-statementOverhead)/2)]
	}
	part := message.NewMessage(row.UUID, first)
	insert, err := p.config.Schema.InsertQuery(topic, message.Messages{part})
	if err != nil {
		return nil, err
	}
	queries, table := []wsql.Query{insert},
		p.config.Schema.(interface{ MessagesTable(string) string }).MessagesTable(topic)
	for rest := payload[len(first):]; len(rest) > 0; {
		n := min(len(rest), (limit-statementOverhead)/2)
		queries = append(queries, wsql.Query{
			Query: "UPDATE " + table + " SET payload = CONCAT(payload, ?) WHERE `offset` = LAST_INSERT_ID()",
			Args:  []any{rest[:n]},
		})
		rest = rest[n:]
	}
	return append(queries, wsql.Query{
		Query: "UPDATE " + table + " SET metadata = ? WHERE `offset` = LAST_INSERT_ID()", Args: []any{whole.Args[2]},
	}), nil
}

// written is the greatest length of a statement into which a driver writes the arguments.
func (d *dialect) written(query wsql.Query) int {
	size := sizeOf(query)
	if !d.escapes {
		return size
	}
	for _, arg := range query.Args {
		switch value := arg.(type) {
		case []byte:
			for _, c := range []byte("\x00\n\r\x1a'\"\\") {
				size += bytes.Count(value, []byte{c})
			}
		case string:
			for _, c := range "\x00\n\r\x1a'\"\\" {
				size += strings.Count(value, string(c))
			}
		}
	}
	return size
}

func (d *dialect) tooLarge(size int) error {
	return fmt.Errorf("wmsql: the statement has %d bytes; %s takes %d, of which %d are kept for the dead letter of the "+
		"message; publish a smaller message: %w", size, d.name, d.maxStatement, d.liveRoom(), classify.ErrTooLarge)
}

// room is what metadata must leave for that of a dead letter, and liveRoom what a message must that is none yet.
func (d *dialect) room() int     { return min(letterRoom, d.maxStatement/4) }
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
