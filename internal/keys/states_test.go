package keys

import (
	"os"
	"strings"
	"testing"
)

// The page on the states of a key shows the SQL that runs.
func TestStatesAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../idempotency/STATES.md")
	if err != nil {
		t.Fatal(err)
	}
	plain := func(text string) string {
		text = strings.NewReplacer(microsPostgres, "now_us", nowPostgres, "now").Replace(text)
		return strings.Join(strings.Fields(text), " ")
	}
	shown := plain(string(page))
	d, l := InPostgres, leasingPostgres
	for _, statement := range []string{
		d.enter, d.upsert, d.find, d.takeOver, d.record, d.published,
		l.enter, l.take, l.takeVersion, l.fence, l.renew, l.complete, l.release, purgePostgres,
	} {
		if want := plain(statement) + ";"; !strings.Contains(shown, want) {
			t.Errorf("not on the page: %s", want)
		}
	}
}
