package wmkafka

import (
	"time"

	"github.com/watermill-spillway/spillway/internal/logging"
)

// maxIdle is how long the publisher of NewStages keeps its connections and producers after the last message. The next
// message opens them again, which takes some round trips, or up to 20 s more if no broker answers.
const maxIdle = time.Minute

// idle closes the producers of a publisher that sends nothing. Sarama keeps two goroutines for each topic that was
// published to.
type idle struct {
	timer *time.Timer // nil if the producers are kept
	seen  int64       // what was used when the timer began
}

// start begins to watch.
func (i *idle) start(p *Publisher) {
	if p.config.maxIdle == 0 {
		return
	}
	p.sending.Lock()
	defer p.sending.Unlock()
	i.timer = time.AfterFunc(p.config.maxIdle, func() { i.look(p) })
}

// look closes the producers if none was used since the last look.
func (i *idle) look(p *Publisher) {
	used := p.producers.used.Load()
	if used != i.seen {
		i.seen = used
		i.again(p)
		return
	}
	p.sending.Lock()
	if !p.closed.Load() && p.producers.used.Load() == used {
		if err := p.producers.close(); err != nil {
			logging.IdleNotClosed.Write(p.config.Logger, err, nil)
		}
	}
	p.sending.Unlock()
	i.again(p)
}

func (i *idle) again(p *Publisher) {
	p.sending.RLock()
	defer p.sending.RUnlock()
	if !p.closed.Load() {
		i.timer.Reset(p.config.maxIdle)
	}
}

// stop ends it, with the publisher, whose sending is locked.
func (i *idle) stop() {
	if i.timer != nil {
		i.timer.Stop()
	}
}
