package idempotency_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	_ "modernc.org/sqlite" // registers "sqlite"

	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/testkit"
)

// A handler on SQLite that writes beside the transaction of its message waits for itself. Its error names the remedy.
func TestHandlerWaitsForItself(t *testing.T) {
	db := testkit.Must(sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "shop.db")+"?_pragma=journal_mode(wal)"))
	defer func() { _ = db.Close() }()
	testkit.Must(db.Exec(`CREATE TABLE orders (id TEXT)`))
	receiver := testkit.Must(idempotency.NewReceiver(testkit.Must(idempotency.NewStore(t.Context(), db, "")), idempotency.ReceiverConfig{Consumer: "shop"}))
	write := func(writes func(context.Context, string, ...any) (sql.Result, error), ctx context.Context) error {
		_, err := writes(ctx, `INSERT INTO orders VALUES ('1')`)
		return err
	}
	beside := receiver.Middleware(func(msg *message.Message) ([]*message.Message, error) {
		return nil, write(db.ExecContext, msg.Context())
	})
	_, err := beside(message.NewMessage("1", nil))
	testkit.Says(t, err, "write through idempotency.Tx")
	within := receiver.Middleware(func(msg *message.Message) ([]*message.Message, error) {
		return nil, write(idempotency.Tx(msg.Context()).ExecContext, msg.Context())
	})
	_, err = within(message.NewMessage("1", nil))
	testkit.NoError(t, err)
}
