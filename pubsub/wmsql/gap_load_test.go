package wmsql_test

import (
	"database/sql"
	"fmt"
	"testing"
	"time"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"

	"github.com/watermill-spillway/spillway/internal/database/mysql/mysqltest"
	"github.com/watermill-spillway/spillway/internal/testkit"
)

// Fact: watermill-sql's own subscriber for MySQL passes over a row that becomes visible after a row with a higher
// number, for good. So rows of concurrent publishers come: the server gives a number out before it writes the row. When
// this test fails, the subscriber waits for such rows: say so in doc.go, and compare gap.go with what it does instead.
func TestFactStockLosesRows(t *testing.T) {
	dsn := mysqltest.Database(t)
	b := newBench(t, func(t testing.TB) *sql.DB { return mysqltest.Open(t, dsn) })
	stock, err := wsql.NewSubscriber(b.db, wsql.SubscriberConfig{
		SchemaAdapter: wsql.DefaultMySQLSchema{}, OffsetsAdapter: wsql.DefaultMySQLOffsetsAdapter{},
		PollInterval: time.Millisecond, ResendInterval: time.Millisecond,
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	messages := b.messages(stock)
	for _, row := range []struct {
		number int
		id     string
		comes  bool
	}{{2, "a", true}, {1, "late", false}, {3, "b", true}} {
		b.exec(fmt.Sprintf("INSERT INTO %s (`offset`, uuid, payload, metadata) VALUES (%d, '%s', '{}', '{}')", b.table(b.topic), row.number, row.id))
		if !row.comes {
			continue
		}
		if msg := testkit.Receive(t, row.id+" comes", messages); msg.UUID == row.id {
			msg.Ack()
		} else {
			t.Errorf("%s came", msg.UUID)
		}
	}
	if err := stock.Close(); err != nil {
		t.Error(err)
	}
}
