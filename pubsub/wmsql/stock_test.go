package wmsql_test

import (
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

// stockSchema is the schema with which watermill-sql's own parts use the tables of ours.
func (b *bench) stockSchema(batch ...int) wsql.SchemaAdapter {
	n := append(batch, 0)[0]
	if b.isPostgres() {
		return wsql.DefaultPostgreSQLSchema{GeneratePayloadType: func(string) string { return "BYTEA" },
			SubscribeBatchSize: n}
	}
	return wsql.DefaultMySQLSchema{GeneratePayloadType: func(string) string { return "LONGBLOB" },
		SubscribeBatchSize: n}
}

// jsonSchema is the one that watermill-sql has by default, whose payloads are JSON.
func (b *bench) jsonSchema() wsql.SchemaAdapter {
	if b.isPostgres() {
		return wsql.DefaultPostgreSQLSchema{}
	}
	return wsql.DefaultMySQLSchema{}
}

func (b *bench) stockPublisher(schema wsql.SchemaAdapter) *wsql.Publisher {
	b.Helper()
	return testkit.Must(wsql.NewPublisher(b.db, wsql.PublisherConfig{SchemaAdapter: schema}, nil))
}

func (b *bench) stockSubscriber(config wsql.SubscriberConfig, log ...watermill.LoggerAdapter) *wsql.Subscriber {
	b.Helper()
	if config.SchemaAdapter == nil {
		config.SchemaAdapter = b.stockSchema()
	}
	config.OffsetsAdapter = wsql.DefaultMySQLOffsetsAdapter{}
	if b.isPostgres() {
		config.OffsetsAdapter = wsql.DefaultPostgreSQLOffsetsAdapter{}
	}
	sub := testkit.Must(wsql.NewSubscriber(b.db, config, append(log, nil)[0]))
	b.Cleanup(func() { _ = sub.Close() })
	return sub
}

// stock subscribes with watermill-sql's own.
func (b *bench) stock(deadline time.Duration) (*wsql.Subscriber, <-chan *message.Message) {
	b.Helper()
	brief := 10 * time.Millisecond
	sub := b.stockSubscriber(wsql.SubscriberConfig{
		AckDeadline: &deadline, PollInterval: brief, ResendInterval: brief, RetryInterval: brief,
	})
	return sub, b.messages(sub)
}

// do runs a statement in the transaction of watermill-sql's subscriber.
func do(t *testing.T, msg *message.Message, statement string) error {
	t.Helper()
	tx, ok := wsql.TxFromContext(msg.Context())
	testkit.Require(t, ok, "there is no transaction")
	_, err := tx.Exec(statement)
	return err
}
