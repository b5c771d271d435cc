package idempotency_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"

	"github.com/ThreeDotsLabs/watermill/message"
	_ "modernc.org/sqlite"

	"github.com/watermill-spillway/spillway/idempotency"
)

// must is for examples: a program handles its errors.
func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// accounts opens a database with one account, for the examples.
func accounts() (*sql.DB, func()) {
	dir := must(os.MkdirTemp("", "spillway"))
	db := must(sql.Open("sqlite", filepath.Join(dir, "accounts.db")))
	must(db.Exec(`CREATE TABLE account (balance INTEGER); INSERT INTO account VALUES (100)`))
	return db, func() { _ = db.Close(); _ = os.RemoveAll(dir) }
}

func balance(db *sql.DB) (n int) {
	if err := db.QueryRow(`SELECT balance FROM account`).Scan(&n); err != nil {
		panic(err)
	}
	return n
}

// A payment that is delivered twice is booked once, and announced twice with the same id.
func ExampleReceiver() {
	db, cleanUp := accounts()
	defer cleanUp()
	store := must(idempotency.NewStore(context.Background(), db, ""))
	receiver := must(idempotency.NewReceiver(store, idempotency.ReceiverConfig{
		Consumer: "billing", // in a router the handler's name serves
	}))
	handle := receiver.Middleware(func(msg *message.Message) ([]*message.Message, error) {
		_, err := idempotency.Tx(msg.Context()).ExecContext(msg.Context(), `UPDATE account SET balance = balance - 30`)
		return []*message.Message{message.NewMessage("", []byte("booked"))}, err
	})
	first := must(handle(message.NewMessage("payment-1", nil)))
	second := must(handle(message.NewMessage("payment-1", nil)))
	fmt.Println("balance:", balance(db))
	fmt.Println("the same id:", first[0].UUID == second[0].UUID)
	// Output:
	// balance: 70
	// the same id: true
}

// On a database server a store needs a service. A claim holds a connection while its handler runs: the pool needs one
// for each message that is handled at the same time. MySQL and MariaDB differ in the driver alone.
func ExampleNewStore() {
	db := must(sql.Open("pgx", "postgres://app@localhost/shop")) // or another driver
	db.SetMaxOpenConns(20)
	store := must(idempotency.NewStore(context.Background(), db, "shop"))
	receiver := must(idempotency.NewReceiver(store, idempotency.ReceiverConfig{}))
	_ = receiver.Middleware(func(msg *message.Message) ([]*message.Message, error) {
		tx := idempotency.Tx(msg.Context())
		_, err := tx.ExecContext(msg.Context(), `UPDATE account SET balance = balance - 30 WHERE id = $1`, msg.Metadata.Get("account"))
		return nil, err
	})
}

// What is written through Tx goes when the handler fails.
func ExampleTx() {
	db, cleanUp := accounts()
	defer cleanUp()
	store := must(idempotency.NewStore(context.Background(), db, ""))
	receiver := must(idempotency.NewReceiver(store, idempotency.ReceiverConfig{Consumer: "billing"}))
	handle := receiver.Middleware(func(msg *message.Message) ([]*message.Message, error) {
		tx := idempotency.Tx(msg.Context())
		if _, err := tx.ExecContext(msg.Context(), `UPDATE account SET balance = balance - 30`); err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("no invoice for %s", msg.UUID)
	})
	_, err := handle(message.NewMessage("payment-1", nil))
	fmt.Println("error:", err)
	fmt.Println("balance:", balance(db))
	// Output:
	// error: no invoice for payment-1
	// balance: 100
}

// Where a producer gives each delivery a new id, the key comes from what it sets itself.
func ExampleByMetadata() {
	key := idempotency.ByMetadata("idempotency-key")
	msg := message.NewMessage("id-of-this-delivery", nil)
	msg.Metadata.Set("idempotency-key", "order-17/paid")
	fmt.Println(key(msg))
	fmt.Println(key(message.NewMessage("another", nil)))
	// Output:
	// order-17/paid <nil>
	//  the message has no metadata "idempotency-key" to take as its key
}

// A payload alone can be the key, where equal payloads mean the same message.
func ExampleByPayloadHash() {
	key := idempotency.ByPayloadHash
	one, _ := key(message.NewMessage("1", []byte(`{"order":17}`)))
	two, _ := key(message.NewMessage("2", []byte(`{"order":17}`)))
	fmt.Println(one == two)
	// Output: true
}

// A key of one's own may join several parts.
func ExampleReceiverConfig_key() {
	key := func(msg *message.Message) (string, error) {
		order, version := msg.Metadata.Get("order"), msg.Metadata.Get("version")
		if order == "" || version == "" {
			return "", nil // an empty key is an error of the message
		}
		return order + "/" + version, nil
	}
	msg := message.NewMessage("id", nil)
	msg.Metadata = message.Metadata{"order": "17", "version": "3"}
	fmt.Println(key(msg))
	// Output: 17/3 <nil>
}

// Prices may arrive in any order. One that is older than the price that was applied has no effect.
func ExampleVersionMetadata() {
	db, cleanUp := accounts()
	defer cleanUp()
	store := must(idempotency.NewStore(context.Background(), db, ""))
	receiver := must(idempotency.NewReceiver(store, idempotency.ReceiverConfig{
		Consumer: "prices",
		Key:      idempotency.ByMetadata("article"),
		Version:  idempotency.VersionMetadata("version"),
		Hooks: idempotency.Hooks{OnStale: func(_ context.Context, key idempotency.Key, version, applied int64) {
			fmt.Printf("%s: version %d is older than %d\n", key.ID, version, applied)
		}},
	}))
	handle := receiver.Middleware(func(msg *message.Message) ([]*message.Message, error) {
		fmt.Println("the price is", string(msg.Payload))
		return nil, nil
	})
	for _, price := range []struct{ version, amount string }{{"2", "9.90"}, {"1", "8.50"}, {"3", "9.50"}} {
		msg := message.NewMessage("", []byte(price.amount))
		msg.Metadata = message.Metadata{"article": "chair", "version": price.version}
		must(handle(msg))
	}
	// Output:
	// the price is 9.90
	// chair: version 1 is older than 2
	// the price is 9.50
}
