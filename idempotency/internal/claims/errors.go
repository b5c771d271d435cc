package claims

import (
	"database/sql"
	"errors"
	"fmt"
	"strconv"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/boundedtext"
	"github.com/watermill-spillway/spillway/internal/keytable"
)

// ErrApplied is the error of the statements of an optimistic handler whose message was applied before.
var ErrApplied = errors.New("the message was applied before, and is about to be absorbed: end the handler")

// ErrRolledBack says that SQLite rolled the transaction back by itself after a statement failed, as it does when the
// disk is full, a statement is interrupted, or one says OR ROLLBACK (sqlite.org/lang_transaction.html). database/sql
// does not notice, and what is written after that commits on its own.
var ErrRolledBack = errors.New("the transaction was rolled back before the handler returned, by SQLite when a " +
	"statement failed or by the handler")

// ErrUndone says that nothing of the transaction is in the database, and nothing of what the handler wrote after its
// end.
var ErrUndone = errors.New("the transaction was rolled back before the handler returned")

// EndedByHandler is what a dead letter says of a handler that ended its transaction.
const EndedByHandler = "the handler ended the transaction itself: return nil for a commit and an error for a rollback, " +
	"and leave both to the receiver. What the Commit of Tx was asked to keep is not kept; what a COMMIT in SQL kept, stays"

// CommittedByHandler is what the Commit of a handler's transaction returns where it can be kept from committing.
func CommittedByHandler(store string, row keytable.Row) error {
	quote := func(s string) string { return strconv.Quote(boundedtext.Text(s, 128)) }
	err := fmt.Errorf("idempotency: commit key %s of consumer %s: %s: commit by the handler: the transaction is the "+
		"receiver's, and nothing of it is committed: %w", quote(row.ID), quote(row.Consumer), store, sql.ErrTxDone)
	return classify.Permanent(err, classify.Description(EndedByHandler))
}
