package letters_test

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/redrive/internal/fixture"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

func TestMain(m *testing.M) {
	if text := os.Getenv(childVariable); text != "" {
		if err := child(text); err != nil {
			fmt.Fprintln(os.Stderr, "child:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
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
