package letters_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/internal/testkit/child"
	"github.com/watermill-spillway/spillway/redrive/internal/fixture"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

func TestMain(m *testing.M) {
	child.Main(killing.reseal)
	goleak.VerifyTestMain(m)
}

const deadline = testkit.Patience

var (
	sqliteFile, postgresSchema, mysqlDatabase = fixture.SQLite, fixture.Postgres, fixture.MySQL
	onEach, storeOn                           = fixture.OnEach, fixture.StoreOn
	letter, several, from, redrivenTimes      = fixture.Letter, fixture.Several, fixture.From, fixture.RedrivenTimes
	publish, list, wantCount, status          = fixture.Publish, fixture.List, fixture.WantCount, fixture.Status
	eventually                                = testkit.Eventually
)

func newStore(t testing.TB) *letters.Store { return sqliteFile.NewStore(t) }
