package jetstream

import (
	"context"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
)

// subscription stands between watermill-nats and the router, for the end: watermill-nats drops what is in hand when it
// ends, and the server delivers it again only after AckWait. Here the contexts of these messages end, and handlers have
// a second to settle them. Then all that is left is requeued.
type subscription struct {
	gate     *gate
	incoming <-chan *message.Message
	out      chan *message.Message
	ended    context.Context // of the subscriber or of Subscribe
	release  func()          // ends the subscription of watermill-nats

	mu     sync.Mutex
	inHand map[*message.Message]struct{}
}

// settleGrace is how long handlers have to settle their messages when the subscription ends.
const settleGrace = time.Second

func (s *subscription) run() {
	for s.ended.Err() == nil {
		select {
		case <-s.ended.Done():
		case msg := <-s.incoming:
			s.hand(msg)
		}
	}
	close(s.out)
	s.drain()
	s.release()
	for range s.incoming { // until watermill-nats has ended
	}
}

// hand gives the message to the router. The context that watermill-nats gave the message ends when the message is
// settled, or when its AckWait is over.
func (s *subscription) hand(msg *message.Message) {
	settled := msg.Context()
	ctx, cancel := context.WithCancel(settled)
	detach := context.AfterFunc(s.ended, cancel)
	msg.SetContext(ctx)
	s.mu.Lock()
	s.inHand[msg] = struct{}{}
	s.mu.Unlock()
	context.AfterFunc(settled, func() {
		detach()
		cancel()
		s.mu.Lock()
		delete(s.inHand, msg)
		s.mu.Unlock()
		s.gate.settled()
	})
	select {
	case s.out <- msg:
	case <-s.ended.Done():
		msg.Nack()
	case <-settled.Done(): // it was not taken in time: the server has delivered it again
	}
}

// requeue nacks what is in hand. What its handler has settled meanwhile stays so.
func (s *subscription) requeue() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for msg := range s.inHand {
		msg.Nack()
	}
}

// drain gives back what comes, until nothing is in hand and nothing more comes.
func (s *subscription) drain() {
	s.gate.close()
	ticker := time.NewTicker(quiet / 5)
	defer ticker.Stop()
	grace := time.NewTimer(settleGrace)
	defer grace.Stop()
	for {
		select {
		case msg := <-s.incoming:
			context.AfterFunc(msg.Context(), s.gate.settled)
			msg.Nack()
		case <-grace.C:
			s.requeue()
		case <-ticker.C:
			if s.gate.empty() {
				return
			}
		}
	}
}
