package conformance

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/middleware/crashlimit"
)

const (
	// bystanders are the messages around those that end the process.
	bystanders = 1000
	// neighbours are the messages that end it. They come one right after the other.
	neighbours = 3
	// maxDeaths is how often they may end it: each as often as the limit says by default, and the first of all once
	// more, since none is counted before there was one.
	maxDeaths = neighbours*3 + 1
	// dying is how long such a handler takes, as one does that fills the memory. No verdict depends on it.
	dying = 300 * time.Millisecond
)

// Feature D10, promise P4: messages that end the process are set aside after a bounded number of deaths, also if one
// ends it right after the one before it was set aside. No other message is, whether it came before, after, or was in
// flight.
func (b *bench) deadly() {
	b.begin()
	var ids, deadly []string
	for i := range bystanders {
		if ids = append(ids, fmt.Sprintf("good-%d", i)); i == bystanders/2 {
			for n := range neighbours {
				deadly = append(deadly, fmt.Sprintf("%s-%d", deadlyPrefix, n))
			}
			ids = append(ids, deadly...)
		}
	}
	b.send(ids...)
	deaths := 0
	for b.supervised(deadly) {
		if deaths++; deaths > maxDeaths {
			b.Fatalf("the process ended %d times, and messages that end it are not set aside", deaths)
		}
	}
	if deaths < 2 {
		b.Errorf("the process ended %d times: no message was deadly", deaths)
	}
	b.Logf("%d deaths", deaths)
	// What it had acked when it ended, a process may not have told.
	b.until("the bystanders took effect", func() bool { return len(b.effects()) == bystanders })
	b.wrapUp(ids...) // which looks at the reason too, and fails for any other dead letter
}

// supervised runs a process until it ends, or until each of the deadly messages was set aside and all others were
// acked.
func (b *bench) supervised(deadly []string) (died bool) {
	p := b.launch(func(s *setting) { s.Limit = true })
	for deadline := time.Now().Add(2 * patience); ; time.Sleep(20 * time.Millisecond) {
		select {
		case <-p.ended:
			p.killed = true
			return true
		default:
		}
		if b.everyPlaced(deadly) && len(b.effects()) == bystanders {
			return false
		}
		if time.Now().After(deadline) {
			b.Fatalf("neither did the process end nor were the messages set aside within %s", 2*patience)
		}
	}
}

// deliveries is the store that counts them.
func (b *bench) deliveries() *crashlimit.Store {
	store, err := crashlimit.NewStore(context.Background(), b.db, b.group)
	if err != nil {
		b.Fatal(err)
	}
	return store
}

// receives notes a message that ends the process.
func (c *consumer) receives(msg *message.Message) {
	if !strings.HasPrefix(msg.UUID, deadlyPrefix) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.deadly == nil {
		c.deadly = make(map[string]*message.Message)
	}
	c.deadly[msg.UUID] = msg
}

// refuses notes that such a message was refused.
func (c *consumer) refuses(_ context.Context, exceeded crashlimit.Unfinished) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.setAside = append(c.setAside, c.deadly[exceeded.Key])
}

// die ends the process at the worst of times: soon after the messages that were refused are acked, so that the broker
// may not know yet.
func (c *consumer) die(id string) {
	c.mu.Lock()
	refused := c.setAside
	c.mu.Unlock()
	for _, msg := range refused {
		select {
		case <-msg.Acked():
		case <-msg.Nacked():
		}
	}
	time.Sleep(dying)
	c.tell("dies", id)
	os.Exit(3)
}
