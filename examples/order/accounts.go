package main

import (
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/idempotency"
)

// amount is what a message brings to its account, or takes from it. Each withdrawal takes what the deposit in front of
// it brought, so in the end all accounts are empty, and in another order there is not enough money.
func (p *plan) amount(number int) int {
	turn := number / p.Keys
	brought := 10 + turn/2%9*10
	if turn%2 == 1 {
		return -brought
	}
	return brought
}

var errNoMoney = classify.Permanent(errors.New("there is not enough money in the account"))

// book asks the bank and then books the amount of a message.
func (p *plan) book(from broker, msg *message.Message) ([]*message.Message, error) {
	number, err := strconv.Atoi(string(msg.Payload))
	if err != nil {
		return nil, err
	}
	answer, err := http.Post(p.Bank+"/"+msg.UUID, "", nil)
	if err != nil {
		return nil, err
	}
	if err := answer.Body.Close(); err != nil || answer.StatusCode != http.StatusOK {
		return nil, errors.Join(err, fmt.Errorf("the bank answers %s", answer.Status))
	}
	account, _, _ := strings.Cut(msg.UUID, "/")
	lane := fmt.Sprint(account, "@", from.partition(msg))
	tx, ctx, balance := idempotency.Tx(msg.Context()), msg.Context(), 0
	err = tx.QueryRowContext(ctx, `SELECT balance FROM accounts WHERE account = $1 FOR UPDATE`, account).Scan(&balance)
	if err != nil {
		return nil, err
	}
	if balance += p.amount(number); balance < 0 {
		return nil, errNoMoney
	}
	if _, err := tx.ExecContext(ctx, `UPDATE accounts SET balance = $2 WHERE account = $1`, account,
		balance); err != nil {
		return nil, err
	}
	if _, err := tx.ExecContext(ctx, `INSERT INTO effects (id, lane, number) VALUES ($1, $2, $3)`, msg.UUID, lane,
		number); err != nil {
		return nil, err
	}
	out := message.NewMessage(msg.UUID, msg.Payload)
	out.Metadata.Set(laneKey, lane)
	return []*message.Message{out}, nil
}

// open makes the accounts.
func (p *plan) open(db *sql.DB) error {
	if _, err := db.Exec(`CREATE TABLE accounts (account TEXT PRIMARY KEY, balance BIGINT NOT NULL CHECK (balance >= 0))`); err != nil {
		return err
	}
	for n := range p.Keys {
		if _, err := db.Exec(`INSERT INTO accounts VALUES ($1, 0)`, p.keyOf(n)); err != nil {
			return err
		}
	}
	return nil
}

// bank is the downstream. It outlives the consumer, and remembers which calls it has failed.
type bank struct {
	*httptest.Server
	unavailable atomic.Bool

	mu    sync.Mutex
	calls map[string]int
}

// newBank fails the calls that the plan says.
func (p *plan) newBank() *bank {
	b := &bank{calls: make(map[string]int)}
	b.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(p.Work)
		if b.unavailable.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		id := strings.TrimPrefix(r.URL.Path, "/")
		b.mu.Lock()
		b.calls[id]++
		times := b.calls[id]
		b.mu.Unlock()
		if times <= p.fate(id) {
			w.WriteHeader(http.StatusBadGateway)
		}
	}))
	p.Bank = b.URL
	return b
}
