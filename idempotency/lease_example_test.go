package idempotency_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/idempotency"
)

// mailer is a service outside of the database. It keeps the highest token it has seen, and refuses a lower one.
type mailer struct {
	token int64
	sent  []string
}

func (m *mailer) send(token int64, text string) error {
	if token < m.token {
		return errors.New("refused: the sender has lost its lease")
	}
	m.token, m.sent = token, append(m.sent, text)
	return nil
}

// A mail cannot be part of a transaction. Under a lease no other process sends it meanwhile, and a duplicate that comes
// later sends none. The fencing token lets the other side refuse a sender that was suspended for too long.
func ExampleFence() {
	db, cleanUp := accounts()
	defer cleanUp()
	store := must(idempotency.NewStore(context.Background(), db, ""))
	receiver := must(idempotency.NewReceiver(store, idempotency.ReceiverConfig{
		Consumer: "mailer",
		Lease:    30 * time.Second, // renewed while the handler is at work
	}))
	var mails mailer
	handle := receiver.Middleware(func(msg *message.Message) ([]*message.Message, error) {
		token, _ := idempotency.Fence(msg.Context())
		return nil, mails.send(token, "order "+msg.UUID+" is on its way")
	})
	for range 3 {
		must(handle(message.NewMessage("17", nil)))
	}
	fmt.Println(mails.sent)
	fmt.Println("late:", mails.send(mails.token-1, "once more"))
	// Output:
	// [order 17 is on its way]
	// late: refused: the sender has lost its lease
}
