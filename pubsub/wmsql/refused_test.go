package wmsql_test

import (
	"errors"
	"testing"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
)

// Features P4, P2: a table of dead letters may be one that watermill-sql made, whose payloads are JSON, or in another
// character set. A letter that its columns refuse is written in a form that they take, and is read as it was.
func TestLetterInRefusingTable(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		dead := b.topic + ".dlq"
		var queries []wsql.Query
		if b.isPostgres() {
			queries = wsql.DefaultPostgreSQLSchema{}.SchemaInitializingQueries(dead)
		} else {
			queries = wsql.DefaultMySQLSchema{}.SchemaInitializingQueries(dead)
		}
		for _, query := range queries {
			b.exec(query.Query)
		}
		if !b.isPostgres() {
			b.exec(`ALTER TABLE ` + b.table(dead) + ` MODIFY uuid VARCHAR(36) CHARACTER SET latin1 NOT NULL`)
		}
		sent := map[string]*message.Message{}
		for _, msg := range []*message.Message{
			message.NewMessage("json", []byte(`{"a": 1}`)),
			message.NewMessage("bytes", []byte("\x00\xff no JSON")),
			message.NewMessage("empty", []byte{}),
			message.NewMessage("näme 😀", []byte(`{"b": "😀"}`)),
			message.NewMessage("both 😀", []byte("neither 😀")),
		} {
			msg.Metadata.Set("key 😀", "value 😀\x00\xff")
			sent[msg.UUID] = msg
			if err := b.pub.Publish(b.topic, msg); err != nil {
				t.Fatal(err)
			}
		}
		b.publish("good")
		b.run(b.subscriber(), func(msg *message.Message) ([]*message.Message, error) {
			if msg.UUID != "good" {
				return nil, classify.Permanent(errors.New("not this one"))
			}
			return nil, b.write(msg, "effect")
		})
		b.drained()
		if len(b.effects()["good"]) != 1 {
			t.Error("the message behind them was not handled")
		}
		for _, letter := range b.take(dead, len(sent)) {
			original := sent[letter.UUID]
			if original == nil || string(original.Payload) != string(letter.Payload) || letter.Metadata["key 😀"] != original.Metadata["key 😀"] {
				t.Errorf("%q: payload %q, metadata %q", letter.UUID, letter.Payload, letter.Metadata["key 😀"])
			}
			delete(sent, letter.UUID)
		}
		for id := range sent {
			t.Errorf("no letter of %q", id)
		}
		if err := b.pub.Publish(dead, message.NewMessage("live", []byte("no JSON"))); err == nil {
			t.Error("a message that is no letter is written in a form that watermill-sql does not read")
		}
	})
}
