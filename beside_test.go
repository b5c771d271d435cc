package spillway_test

import (
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/delivery"
)

// Feature D10: a channel with a store for deliveries registers its process while the router runs, and signs off before
// the router has closed.
func TestDeliveriesRegister(t *testing.T) {
	b := newBench(t, true)
	dlc, err := spillway.New(spillway.Config{Publisher: b.letters, Deliveries: delivery.LimitConfig{Store: delivery.SQLite(b.db)}})
	if err != nil {
		t.Fatal(err)
	}
	registered := make(chan int, 1)
	stop := b.run(dlc.Attach, func(msg *message.Message) ([]*message.Message, error) {
		registered <- b.count("spillway_processes")
		return nil, b.apply(msg)
	})
	b.publish(message.NewMessage("1", nil))
	if n := <-registered; n != 1 {
		t.Errorf("%d processes are registered while a handler runs", n)
	}
	stop()
	if n, marks := b.count("spillway_processes"), b.count("spillway_deliveries"); n != 0 || marks != 0 {
		t.Errorf("%d processes and %d marks are left", n, marks)
	}
}
