package idempotency

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/internal/wait"
)

// stopTimeout is how long a router that stops waits for a batch, which is interrupted then.
const stopTimeout = 10 * time.Second

func (p *purge) start() error {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	p.cancel, p.ended = cancel, ended
	go func() {
		defer close(ended)
		p.run(ctx)
	}()
	return nil
}

func (p *purge) run(ctx context.Context) {
	for due := rand.N(p.config.Every/10 + 1); wait.For(ctx, due); due = p.config.Every {
		n, err := p.once(ctx)
		fields := logging.Fields{"of": fmt.Sprintf("%T", p.store), "keys": n}
		switch {
		case err != nil && ctx.Err() == nil:
			logging.PurgeFailed.Write(p.config.Logger, err, fields)
		case err == nil && n > 0:
			logging.KeysPurged.Write(p.config.Logger, nil, fields)
		}
	}
}

func (p *purge) stop() {
	p.cancel()
	timer := time.NewTimer(stopTimeout)
	defer timer.Stop()
	select {
	case <-p.ended:
	case <-timer.C:
		logging.PurgeHangs.Write(p.config.Logger, errors.New("the database does not answer"),
			logging.Fields{"of": fmt.Sprintf("%T", p.store)})
	}
}
