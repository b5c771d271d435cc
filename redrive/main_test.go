package redrive_test

import (
	"context"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"go.uber.org/goleak"

	"github.com/watermill-spillway/spillway/internal/testing/fixture"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/redrive"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

func TestMain(m *testing.M) {
	// A router whose Run fails at start-up, as one test wants, leaves this goroutine of its own behind.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/ThreeDotsLabs/watermill/message.(*Router).watchAllHandlersStopped.func1"))
}

const deadline = testkit.Patience

type (
	database      = fixture.Database
	outbox        = fixture.Outbox
	publisherFunc = fixture.PublisherFunc
)

var (
	sqliteFile, postgresSchema, mysqlDatabase = fixture.SQLite, fixture.Postgres, fixture.MySQL
	onEach, storeOn                           = fixture.OnEach, fixture.StoreOn
	letter, several, from, redrivenTimes      = fixture.Letter, fixture.Several, fixture.From, fixture.RedrivenTimes
	publish, list, wantCount, status          = fixture.Publish, fixture.List, fixture.WantCount, fixture.Status
	eventually, withClass                     = testkit.Eventually, fixture.WithClass
)

func newStore(t testing.TB) *letters.Store { return sqliteFile.NewStore(t) }

var (
	errDown, refuse = fixture.ErrDown, fixture.Refuse
	allowOrders     = redrive.Rules{Allow: []string{"orders"}}
	orders          = redrive.DrainConfig{Rules: allowOrders}
)

func drain(t testing.TB, s *letters.Store, live message.Publisher, c redrive.DrainConfig) redrive.Report {
	t.Helper()
	return testkit.Must(redrive.Drain(context.Background(), s, live, c))
}
