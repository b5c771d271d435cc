package conformance_test

import (
	"context"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/conformance"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/pubsub/wmsql"
)

func isLetter(msg *message.Message) bool { return poison.Inside().IsLetter(msg) }

// InitializeTopics and the rest of ours is what the queue asks a publisher for.
func (p unreadable) InitializeTopics(topics ...string) error {
	return p.Publisher.(poison.Initializer).InitializeTopics(topics...)
}

func (p unreadable) ListWaiting(ctx context.Context, prefix string) (map[string]int, error) {
	return p.Publisher.(*wmsql.Publisher).ListWaiting(ctx, prefix)
}

// insert writes a row as no publisher would.
func (s *tables) insert(topic, id string, payload []byte, metadata any) error {
	columns, values := "uuid, payload, metadata", "?, ?, ?"
	if s.driver == "pgx" {
		columns, values = columns+", transaction_id", "$1, $2, $3, pg_current_xact_id()"
	}
	_, err := s.db.Exec(`INSERT INTO `+s.table(topic)+` (`+columns+`) VALUES (`+values+`)`, id, payload, metadata)
	return err
}

// hostile are rows that stop watermill-sql's own subscriber for good, and some that do not.
func (s *tables) hostile() []conformance.Hostile {
	row := func(payload []byte, metadata any) func(testing.TB, string) {
		return func(t testing.TB, topic string) {
			testkit.NoError(t, s.insert(topic, "hostile", payload, metadata))
		}
	}
	unread := func(payload, metadata string) func(testing.TB, *message.Message) {
		return func(t testing.TB, msg *message.Message) {
			if string(msg.Payload) != payload || msg.Metadata.Get(wmsql.KeyMetadata) != metadata {
				t.Errorf("set aside with payload %q and metadata %v", msg.Payload, msg.Metadata)
			}
		}
	}
	return []conformance.Hostile{
		{Name: "metadata with a number", Publish: row([]byte("v"), `{"n":1}`), Check: unread("v", `{"n":1}`)},
		{Name: "metadata that is an array", Publish: row([]byte("v"), `["a"]`), Check: unread("v", `["a"]`)},
		{Name: "metadata null", Publish: row([]byte("v"), `null`)},
		{Name: "no metadata", Publish: row([]byte("v"), nil)},
		{Name: "no payload", Publish: row(nil, `{"k":"v"}`)},
	}
}
