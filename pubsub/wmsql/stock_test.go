package wmsql_test

import (
	"testing"
	"time"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
)

// stockSchema is the schema with which watermill-sql's own parts use the tables of ours.
func (b *bench) stockSchema() wsql.SchemaAdapter {
	if b.isPostgres() {
		return wsql.DefaultPostgreSQLSchema{GeneratePayloadType: func(string) string { return "BYTEA" }}
	}
	return wsql.DefaultMySQLSchema{GeneratePayloadType: func(string) string { return "LONGBLOB" }}
}

func (b *bench) offsets() wsql.OffsetsAdapter {
	if b.isPostgres() {
		return wsql.DefaultPostgreSQLOffsetsAdapter{}
	}
	return wsql.DefaultMySQLOffsetsAdapter{}
}

func (b *bench) stockPublisher(schema wsql.SchemaAdapter) *wsql.Publisher {
	b.Helper()
	pub, err := wsql.NewPublisher(b.db, wsql.PublisherConfig{SchemaAdapter: schema}, nil)
	if err != nil {
		b.Fatal(err)
	}
	return pub
}

func (b *bench) stockSubscriber(config wsql.SubscriberConfig) *wsql.Subscriber {
	b.Helper()
	if config.SchemaAdapter == nil {
		config.SchemaAdapter = b.stockSchema()
	}
	config.OffsetsAdapter = b.offsets()
	sub, err := wsql.NewSubscriber(b.db, config, nil)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = sub.Close() })
	return sub
}

// stock subscribes with watermill-sql's own.
func (b *bench) stock(deadline time.Duration) (*wsql.Subscriber, <-chan *message.Message) {
	b.Helper()
	brief := 10 * time.Millisecond
	sub := b.stockSubscriber(wsql.SubscriberConfig{AckDeadline: &deadline, PollInterval: brief, ResendInterval: brief, RetryInterval: brief})
	messages := b.messages(sub)
	return sub, messages
}

// do runs a statement in the transaction of watermill-sql's subscriber.
func do(t *testing.T, msg *message.Message, statement string) error {
	t.Helper()
	tx, ok := wsql.TxFromContext(msg.Context())
	if !ok {
		t.Fatal("there is no transaction")
	}
	_, err := tx.Exec(statement)
	return err
}
