package keytable

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/watermill-spillway/spillway/internal/database"
)

var inText = regexp.MustCompile(`convert_from\(decode\('[0-9a-f]*','hex'\),'UTF8'\)|decode\('[0-9a-f]*','hex'\)`)

// sent is what commits in PostgreSQL, with … for values.
func sent(outputs []byte, doubt bool, settings *Settings) string {
	return inText.ReplaceAllString(CommitPostgres(NewRow("consumer", "id", nil, 0, false), outputs, doubt, settings), "…")
}

// The page on the states of a key shows the SQL that runs.
func TestStatesAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/key-states.md")
	if err != nil {
		t.Fatal(err)
	}
	plain := func(text string) string {
		text = strings.NewReplacer(microsPostgres, "now_us", nowPostgres, "now").Replace(text)
		return strings.Join(strings.Fields(text), " ")
	}
	shown := plain(string(page))
	d, l := InPostgres, leasings[database.Postgres]
	for _, statement := range []string{
		d.enter, d.upsert, d.find, d.takeOver, d.record, d.published,
		d.entered, l.enter, l.take, l.takeVersion, l.fence, l.renew, l.held, l.complete, l.completed, l.release, purgePostgres,
		sent(nil, true, new(Settings)), sent([]byte("outputs"), false, nil),
	} {
		if want := plain(statement) + ";"; !strings.Contains(shown, want) {
			t.Errorf("not on the page: %s", want)
		}
	}
}
