package wmsql_test

import (
	wsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"

	"github.com/watermill-spillway/spillway/poison/wmsql"
)

// stockSchema is the schema with which watermill-sql's own parts use the tables of ours.
func (b *bench) stockSchema() wsql.SchemaAdapter {
	b.Helper()
	schema, err := wmsql.Schema(b.db)
	if err != nil {
		b.Fatal(err)
	}
	return schema
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
	config.OffsetsAdapter = wsql.OffsetsAdapter(wsql.DefaultMySQLOffsetsAdapter{})
	if b.isPostgres() {
		config.OffsetsAdapter = wsql.DefaultPostgreSQLOffsetsAdapter{}
	}
	sub, err := wsql.NewSubscriber(b.db, config, nil)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = sub.Close() })
	return sub
}
