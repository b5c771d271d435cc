package keytable

import (
	"os"
	"strings"
	"testing"

	"github.com/watermill-spillway/spillway/internal/database"
)

// The page on the states of a key shows the SQL that runs, where it shows any.
func TestStatesAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/key-states.md")
	if err != nil {
		t.Fatal(err)
	}
	plain := func(text string) string {
		text = strings.ReplaceAll(text, statement(database.Postgres, "now_ms()"), "now")
		return strings.Join(strings.Fields(text), " ")
	}
	shown := plain(string(page))
	for _, statement := range []string{InPostgres.enter, InPostgres.find, purgePostgres} {
		if want := plain(statement) + ";"; !strings.Contains(shown, want) {
			t.Errorf("not on the page: %s", want)
		}
	}
}
