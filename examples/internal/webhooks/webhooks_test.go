package webhooks

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"go.uber.org/goleak"
	_ "modernc.org/sqlite"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The tally is worth something only if it finds what is wrong: an event that is nowhere, one without its summary, and
// one that was stored twice.
func TestTallyFindsWhatIsWrong(t *testing.T) {
	db := testkit.Must(sql.Open("sqlite", filepath.Join(t.TempDir(), "tally.db")))
	defer db.Close()
	if _, err := db.Exec(Schema + `; INSERT INTO events VALUES ('stored','e','o','a'), ('silent','e','o','a'), ('twice','e','o','a'), ('twice','e','o','a'), ('twice','e','o','a')`); err != nil {
		t.Fatal(err)
	}
	store := testkit.Must(letters.NewStore(context.Background(), db, letters.Config{Service: "shop"}))
	queue := testkit.Must(poison.NewQueue(store, poison.QueueConfig{}))
	testkit.NoError(t, queue.Place(message.NewMessage("dead", nil), classify.Permanent(errors.New("no"))))
	var published []*message.Message
	for _, id := range []string{"stored", "silent", "twice", "dead", "nowhere", "nowhere"} {
		published = append(published, message.NewMessage(id, nil))
	}
	tally := &Tally{}
	for _, id := range []string{"stored", "twice"} {
		summary := message.NewMessage("summary of "+id, nil)
		summary.Metadata.Set(SummaryOfKey, id)
		testkit.NoError(t, tally.Receive(summary))
	}
	var r Result
	testkit.NoError(t, tally.After(context.Background(), &r, published, db, store))
	if r.Lost != 2 || r.DuplicateEffects != 2 || r.Remaining != 1 || r.Published != 6 || r.Outputs != 2 || r.Good() {
		t.Errorf("%+v", r)
	}
}

// Values from messages do not steer the terminal.
func TestPrintable(t *testing.T) {
	if got := printable("a\x1b[31mred\r\n" + strings.Repeat("x", 1000)); strings.ContainsAny(got, "\x1b\r\n") || len(got) > 100 {
		t.Errorf("%q", got)
	}
}
