package breaker

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/chain/lifecycle"
	"github.com/watermill-spillway/spillway/internal/errs/safecall"
	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database"
)

// shareTimeout bounds one round.
const shareTimeout = 5 * time.Second

// sharing keeps a breaker and a store in step, beside the handlers.
type sharing struct {
	breaker  *Breaker
	store    *Store
	instance string
	life     *lifecycle.Lifecycle
	wake     chan struct{}

	end   context.CancelFunc
	ended chan struct{}
	away  bool // the store did not answer
	swept time.Time
}

func newSharing(g *Breaker, store *Store) *sharing {
	s := &sharing{breaker: g, store: store, instance: rand.Text(), wake: make(chan struct{}, 1)}
	s.life = lifecycle.New(s.start, s.stop)
	return s
}

// Plugin takes the names of the router's handlers, for Open and Close. With Config.Store it shares outages with the
// other instances of the service, for as long as handlers of the router run. A store that is away is logged: then each
// instance decides for itself.
func (g *Breaker) Plugin(router *message.Router) error {
	if router == nil {
		return errors.New("breaker: Plugin: the router is nil: check the error of message.NewRouter")
	}
	if g == nil {
		return nil
	}
	g.roster.Join(router)
	if g.sharing == nil {
		return nil
	}
	return g.sharing.life.Plugin(router)
}

// start asks the store once before the first message: a freeze may be in it.
func (s *sharing) start() error {
	ctx, cancel := context.WithCancel(context.Background())
	s.end, s.ended = cancel, make(chan struct{})
	s.round(ctx)
	go func() {
		defer close(s.ended)
		s.run(ctx)
	}()
	return nil
}

func (s *sharing) stop() {
	s.end()
	<-s.ended
	ctx, cancel := context.WithTimeout(context.Background(), shareTimeout)
	defer cancel()
	if _, err := s.store.db.Exec(ctx, s.store.statements.leave, s.store.service,
		s.store.db.Text(s.instance)); err != nil &&
		!s.away {
		logging.BreakerNotCleared.Write(s.breaker.config.Logger, err, nil)
	}
	s.breaker.lonely()
}

func (s *sharing) run(ctx context.Context) {
	ticks := time.NewTicker(s.store.every)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		case <-s.wake:
		}
		s.round(ctx)
	}
}

// changed has a round begin soon.
func (s *sharing) changed() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// round reads what others found, and then writes what this instance found.
func (s *sharing) round(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, shareTimeout)
	defer cancel()
	err := safecall.Call("breaker: the store", func() error { return s.exchange(ctx) })
	if ctx.Err() != nil && errors.Is(ctx.Err(), context.Canceled) {
		return
	}
	if away := err != nil; away != s.away {
		s.away = away
		if away {
			logging.BreakerStoreAway.Write(s.breaker.config.Logger, s.breaker.cause(err), nil)
		} else {
			logging.BreakerStoreBack.Write(s.breaker.config.Logger, nil, nil)
		}
	}
}

func (s *sharing) exchange(ctx context.Context) error {
	rows, err := s.store.rows(ctx, s.instance)
	if err != nil {
		return err
	}
	own, others, freezes := map[place]bool{}, map[place]Status{}, map[string]Status{}
	for _, row := range rows {
		at := place{handler: row.Handler, scope: row.Scope}
		switch row.Instance {
		case "":
			freezes[row.Handler] = row
		case s.instance:
			own[at] = true
		default:
			others[at] = row
		}
	}
	s.breaker.freezeShared(freezes)
	for _, news := range s.breaker.share(own, others) {
		if err := s.write(ctx, news); err != nil {
			return err
		}
	}
	if now := time.Now(); now.Sub(s.swept) > keptFor {
		s.swept = now
		_, err = s.store.db.Exec(ctx, s.store.statements.purge, s.store.service, keptFor.Milliseconds())
	}
	return err
}

// write tells the other instances what became of a cell.
func (s *sharing) write(ctx context.Context, news news) error {
	db, statements := s.store.db, s.store.statements
	key := []any{s.store.service, db.Text(news.at.handler), db.Text(news.at.scope)}
	var err error
	switch news.what {
	case isOpen:
		_, err = db.Exec(ctx, statements.put,
			append(key, db.Text(s.instance), db.Text(string(Open)), db.Text(news.reason), db.Text(news.cause),
				db.Text(""),
				(lease*s.store.every).Milliseconds())...)
	case isStill:
		_, err = db.Exec(ctx, statements.renew,
			append([]any{db.Text(news.reason), db.Text(news.cause), (lease * s.store.every).Milliseconds()},
				append(key, db.Text(s.instance))...)...)
	case isProved:
		_, err = db.Exec(ctx, statements.proved, key...)
	case isOver:
		_, err = db.Exec(ctx, statements.remove, append(key, db.Text(s.instance))...)
	}
	if err == nil {
		news.cell.written(news)
	}
	return err
}

// canBeShared reports whether a cell has a name that a row can have.
func canBeShared(at place) bool {
	return !at.others && database.Column(at.handler) == at.handler && database.Column(at.scope) == at.scope
}
