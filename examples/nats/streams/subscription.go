package streams

import (
	"context"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
)

// subscription stands between watermill-nats and the router, for the end: watermill-nats drops what is in hand when it closes,
// and the server delivers it again only after AckWait. Here the contexts of these messages end, and handlers have until AckWait
// to settle them. Then what no handler has got is given back.
type subscription struct {
	incoming <-chan *message.Message
	out      chan *message.Message
	ended    context.Context // of the subscriber or of Subscribe
	release  func()          // ends the subscription of watermill-nats
	inHand   sync.WaitGroup
}

func (s *subscription) run() {
	defer func() {
		for range s.incoming { // until watermill-nats has ended
		}
	}()
	defer s.release()
	for s.ended.Err() == nil {
		select {
		case <-s.ended.Done():
		case msg, open := <-s.incoming:
			if !open {
				close(s.out)
				return
			}
			s.hand(msg)
		}
	}
	close(s.out)
	s.drain()
}

// hand gives the message to the router. The context that watermill-nats gave the message ends when the message is settled, or
// when its AckWait is over.
func (s *subscription) hand(msg *message.Message) {
	settled := msg.Context()
	ctx, cancel := context.WithCancel(settled)
	detach := context.AfterFunc(s.ended, cancel)
	msg.SetContext(ctx)
	s.inHand.Add(1)
	context.AfterFunc(settled, func() {
		detach()
		cancel()
		s.inHand.Done()
	})
	select {
	case s.out <- msg:
	case <-s.ended.Done():
		msg.Nack()
	case <-settled.Done(): // nobody took it in time: the server has delivered it again
	}
}

// quiet is how long nothing comes from watermill-nats when it has nothing more: it drops what is left when it ends.
const quiet = 50 * time.Millisecond

// drain waits for what is in hand, and gives back what comes meanwhile.
func (s *subscription) drain() {
	settled := make(chan struct{})
	go func() {
		s.inHand.Wait()
		close(settled)
	}()
	var silence <-chan time.Time // once nothing is in hand
	for {
		select {
		case <-settled:
			settled, silence = nil, time.After(quiet)
		case <-silence:
			return
		case msg, open := <-s.incoming:
			if !open {
				return
			}
			if msg.Nack(); silence != nil {
				silence = time.After(quiet)
			}
		}
	}
}
