package askonce_test

import (
	"context"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/watermill-spillway/spillway/internal/sqlstore/askonce"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/databases"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Feature O1: an instance that was slow in its turn does not put its answer over that of an instance that asked later:
// numbers that only rise would fall.
func TestSlowAnswerStaysBehind(t *testing.T) {
	databases.Each(t, func(t *testing.T, d databases.Database, address string) {
		open := func() *askonce.Question {
			return testkit.Must(askonce.New(t.Context(), d.Open(t, address), "shop", "letters"))
		}
		ask := func(q *askonce.Question, every time.Duration, want string, ask func(context.Context) ([]byte, error)) {
			t.Helper()
			time.Sleep(2 * time.Millisecond) // the clock of SQLite goes by milliseconds
			a, err := q.Ask(t.Context(), every, ask)
			testkit.Check(t, err == nil && string(a.Text) == want && a.Age >= 0, "%q, %s, %v, want %q", a.Text, a.Age,
				err, want)
		}
		says := func(text string) func(context.Context) ([]byte, error) {
			return func(context.Context) ([]byte, error) { return []byte(text), nil }
		}
		slow, quick := open(), open()
		const always = time.Microsecond // each turn is free
		ask(slow, always, "1", func(context.Context) ([]byte, error) {
			ask(quick, always, "2", says("2"))
			return []byte("1"), nil
		})
		ask(quick, time.Hour, "2", says("asked within the hour"))
		ask(slow, always, "3", says("3"))
		ask(quick, time.Hour, "3", says("asked within the hour"))
		testkit.Must(d.Open(t, address).Exec(`UPDATE spillway_answers
			SET turn_at = turn_at + 86400000000, answered_at = answered_at + 86400000000`))
		ask(slow, time.Hour, "4", says("4")) // the clock went back by a day
		ask(quick, time.Hour, "4", says("asked within the hour"))
	})
}
