package letters_test

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"

	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/redrive/internal/fixture"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// kept are the columns that stay when a letter is erased: where it was, what it was chosen by, and who erased it.
const kept = " identity dead_letter_topic origin_topic handler class reason type stack_hash status marked_by marked_why " +
	"redrive_id service cause arrived_redrive_id leased_by "

// A column of text that comes to the table is emptied with the letter, or is named above with a reason.
func TestErase_knowsEachColumn(t *testing.T) {
	db := fixture.SQLite.Create(t)()
	store, ctx := storeOn(t, db), t.Context()
	publish(t, store, "orders.dlq", personal("1"))
	columns := testkit.Must(db.Query(`SELECT name FROM pragma_table_info('spillway_dead_letters') WHERE type IN ('TEXT', 'BLOB')`))
	var names []string
	for columns.Next() {
		var name string
		testkit.NoError(t, columns.Scan(&name))
		if !strings.Contains(kept, " "+name+" ") {
			names = append(names, name)
		}
	}
	testkit.NoError(t, columns.Close())
	for _, name := range names {
		testkit.Must(db.Exec(`UPDATE spillway_dead_letters SET `+name+` = ?`, person))
	}
	_, err := store.Inside().Erase(ctx, letters.Filter{Handlers: []string{"billing"}}, erasing, inside.EraseOptions{ForgetIDs: true})
	testkit.NoError(t, err)
	for _, name := range names {
		var says sql.NullString
		testkit.NoError(t, db.QueryRow(fmt.Sprintf(`SELECT CAST(%s AS TEXT) FROM spillway_dead_letters`, name)).Scan(&says))
		if strings.Contains(says.String, person) {
			t.Errorf("column %s still has the person: empty it in eraseRow, or name it as kept", name)
		}
	}
}
