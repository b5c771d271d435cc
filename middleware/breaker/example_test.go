package breaker_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/ThreeDotsLabs/watermill/message"
	_ "modernc.org/sqlite" // the driver is the application's choice

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/middleware/breaker"
	"github.com/watermill-spillway/spillway/middleware/breaker/sqlshare"
)

// must is for examples: a program handles its errors.
func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// The downstream is unavailable for the first two attempts. The breaker holds the message and tries again, and no error
// leaves it.
func ExampleBreaker_Middleware() {
	breaker := must(breaker.New(breaker.Config{}))
	attempts := 0
	handle := breaker.Middleware(func(msg *message.Message) ([]*message.Message, error) {
		if attempts++; attempts <= 2 {
			return nil, classify.Unavailable(errors.New("bank: connection refused"))
		}
		return nil, nil
	})
	_, err := handle(message.NewMessage("1", []byte("charge")))
	fmt.Println(attempts, err)
	// Output: 3 <nil>
}

// A handler is held by hand while its downstream is deployed. Messages in work end as usual.
func ExampleBreaker_Open() {
	breaker := must(breaker.New(breaker.Config{Hooks: breaker.Hooks{OnChange: func(c breaker.Change) {
		fmt.Println(c.Handler, "is", c.To, "because of", c.Reason)
	}}}))
	if err := breaker.Open("billing", "bank upgrade"); err != nil {
		panic(err)
	}
	for _, status := range breaker.Health() {
		fmt.Println(status.Handler, status.State, status.Waiting)
	}
	if err := breaker.Close("billing"); err != nil {
		panic(err)
	}
	// Output:
	// billing is frozen because of bank upgrade
	// billing frozen 0
	// billing is closed because of bank upgrade
}

// A freeze in a Store holds the messages of a handler in all instances of the service: those whose routers have the
// Plugin of a breaker with such a Store.
func ExampleStore() {
	folder := must(os.MkdirTemp("", "breaker"))
	defer func() { _ = os.RemoveAll(folder) }()
	db := must(sql.Open("sqlite", filepath.Join(folder, "shop.db")+"?_pragma=busy_timeout(20000)"))
	defer func() { _ = db.Close() }()
	ctx := context.Background()
	store := must(sqlshare.NewStore(ctx, db, "shop"))
	breaker := must(breaker.New(breaker.Config{Store: store}))
	router := message.NewDefaultRouter(nil)
	router.AddPlugin(breaker.Plugin)
	router.AddMiddleware(breaker.Middleware)

	if err := store.Freeze(ctx, "billing", "bank upgrade", "ann"); err != nil {
		panic(err)
	}
	held := must(store.List(ctx))
	fmt.Println(held[0].Handler, held[0].State, held[0].Reason)
	fmt.Println(store.Release(ctx, "billing", "the bank is back", "ann"))
	// Output:
	// billing frozen bank upgrade
	// true <nil>
}
