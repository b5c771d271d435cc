package letters_test

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/watermill-spillway/spillway/internal/testing/fixture"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/child"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/databases"
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
	eventually, mustExec, textOf              = testkit.Eventually, databases.Exec, databases.Text
)

func newStore(t testing.TB) *letters.Store { return sqliteFile.NewStore(t) }

// take claims n of the letters that f chooses, for an hour.
func take(t *testing.T, store *letters.Store, f letters.Filter, n int) []fixture.Taken {
	t.Helper()
	taken, err := fixture.Take(t.Context(), store, f, time.Hour, n)
	testkit.Require(t, err == nil && len(taken) == n, "%v %v", taken, err)
	return taken
}
