package conformance

import (
	"context"
	"fmt"
	"time"

	"github.com/watermill-spillway/spillway/middleware/crashlimit"
)

const (
	// bystanders are the messages around the one that ends the process.
	bystanders = 1000
	// maxRestarts is how often a supervisor may have to start the process again: one death is not counted, since none is
	// counted before there was one, and three are by default.
	maxRestarts = 5
)

// Feature D10, promise P4: a message that ends the process is set aside after a bounded number of restarts, and no other
// is, whether it came before, after, or was in flight.
func (b *bench) deadly() {
	b.begin()
	ids := make([]string, bystanders+1)
	for i := range ids {
		ids[i] = fmt.Sprintf("good-%d", i)
	}
	ids[bystanders/2] = deadlyPrefix
	b.send(ids...)
	deaths := 0
	for b.supervised() {
		if deaths++; deaths > maxRestarts {
			b.Fatalf("the process was restarted %d times, and the message that ends it is not set aside", maxRestarts)
		}
	}
	if deaths < 2 {
		b.Errorf("the process ended %d times: the message was not deadly", deaths)
	}
	// What it had acked when it ended, a process may not have told.
	b.until("the bystanders took effect", func() bool { return len(b.effects()) == bystanders })
	b.wrapUp(ids...) // which looks at the reason too, and fails for any other dead letter
}

// supervised runs a process until it ends, or until the deadly message was set aside and all others were acked.
func (b *bench) supervised() (died bool) {
	p := b.launch(func(s *setting) { s.Limit = true })
	for deadline := time.Now().Add(2 * patience); ; time.Sleep(20 * time.Millisecond) {
		select {
		case <-p.ended:
			p.killed = true
			return true
		default:
		}
		if p.said("placed", deadlyPrefix) {
			return false
		}
		if time.Now().After(deadline) {
			b.Fatalf("neither did the process end nor was the message set aside within %s", 2*patience)
		}
	}
}

// deliveries is the store that counts them.
func (b *bench) deliveries() *crashlimit.Store {
	store, err := crashlimit.NewStore(context.Background(), b.db, crashlimit.StoreConfig{Service: b.group})
	if err != nil {
		b.Fatal(err)
	}
	return store
}
