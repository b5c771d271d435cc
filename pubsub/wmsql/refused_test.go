package wmsql_test

import (
	"errors"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

// Features P4, P2: a letter that a table's columns refuse is written in a form that they take, and read as it was.
func TestLetterInRefusingTable(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		dead := b.topic + ".dlq"
		for _, query := range b.jsonSchema().SchemaInitializingQueries(dead) {
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
			testkit.NoError(t, b.pub.Publish(b.topic, msg))
		}
		b.publish("good")
		b.run(b.subscriber(), func(msg *message.Message) ([]*message.Message, error) {
			if msg.UUID != "good" {
				return nil, classify.Permanent(errors.New("not this one"))
			}
			return nil, b.write(msg, "effect")
		})
		b.drained()
		testkit.Check(t, len(b.effects()["good"]) == 1, "the message behind them was not handled")
		for _, letter := range b.take(dead, len(sent)) {
			original, value := sent[letter.UUID], letter.Metadata["key 😀"]
			testkit.Require(t, original != nil, "a letter of %q, which was not sent, or had one", letter.UUID)
			testkit.Check(t, string(original.Payload) == string(letter.Payload) && value == original.Metadata["key 😀"],
				"%q: payload %q, metadata %q", letter.UUID, letter.Payload, value)
			delete(sent, letter.UUID)
		}
		testkit.Check(t, b.pub.Publish(dead, message.NewMessage("live", []byte("no JSON"))) != nil,
			"a message that is no letter is written in a form that watermill-sql does not read")
	})
}
