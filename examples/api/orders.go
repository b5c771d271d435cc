package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/idempotency"
)

// kind is why an order fails, or "".
type kind string

const (
	fine       kind = ""
	noCustomer kind = "no_customer" // the handler does not know guests: a bug
	noLines    kind = "no_lines"    // the handler panics on an order without lines: a bug
	typo       kind = "typo"        // the sender wrote "EU" for a currency
	cutShort   kind = "cut_short"   // half of the payload is missing
)

// newOrders makes n orders, of which one in four fails, in an order drawn by the seed. It returns them, and why each
// fails by its id.
func newOrders(n int, seed uint64) (orders []*message.Message, kinds map[string]kind) {
	random := rand.New(rand.NewPCG(seed, seed))
	kinds = map[string]kind{}
	for i, draw := range random.Perm(n) {
		k := [...]kind{noCustomer, noLines, typo, cutShort}[draw/4%4]
		if draw%4 != 0 {
			k = fine
		}
		payload := fmt.Sprintf(`{"order":%d,"customer":"ann","currency":"EUR","lines":[{"sku":"a","n":1}]}`, i)
		switch k {
		case noCustomer:
			payload = fmt.Sprintf(`{"order":%d,"currency":"EUR","lines":[{"sku":"a","n":1}]}`, i)
		case noLines:
			payload = fmt.Sprintf(`{"order":%d,"customer":"ann","currency":"EUR","lines":[]}`, i)
		case typo:
			payload = fmt.Sprintf(`{"order":%d,"customer":"ann","currency":"EU","lines":[{"sku":"a","n":1}]}`, i)
		case cutShort:
			payload = payload[:len(payload)/2]
		}
		msg := message.NewMessage(fmt.Sprintf("order-%05d", i), []byte(payload))
		kinds[msg.UUID] = k
		orders = append(orders, msg)
	}
	return orders, kinds
}

// schema is the table of effects. Nothing in it keeps an order from being stored twice: that is what is counted.
const schema = `CREATE TABLE orders (id TEXT NOT NULL, first TEXT NOT NULL)`

// handler stores orders.
type handler struct{ fixed atomic.Bool }

func (h *handler) handle(msg *message.Message) error {
	var order struct {
		Customer *string
		Currency string
		Lines    []struct{ SKU string }
	}
	if err := json.Unmarshal(msg.Payload, &order); err != nil {
		return fmt.Errorf("read the order: %w", err)
	}
	if order.Currency == "EU" {
		return classify.Permanent(errors.New(`the currency "EU" is unknown`), classify.Reason("unknown_currency"))
	}
	if order.Customer == nil && !h.fixed.Load() {
		return classify.Permanent(errors.New("the order has no customer"), classify.Reason("no_customer"))
	}
	first := "nothing"
	if len(order.Lines) > 0 || !h.fixed.Load() {
		first = order.Lines[0].SKU // the bug
	}
	_, err := idempotency.Tx(msg.Context()).ExecContext(msg.Context(), `INSERT INTO orders (id, first) VALUES (?, ?)`,
		msg.UUID, first)
	return err
}
