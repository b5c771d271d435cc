package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"hash/fnv"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/middleware"
	"github.com/watermill-spillway/spillway/poison"
)

// instances of the service run at the same time.
const instances = 2

// service is what two instances do, and what they saw.
type service struct {
	*cluster
	topic    string
	busy     bool
	db       *sql.DB // of the judge
	logger   watermill.LoggerAdapter
	repaired atomic.Bool // the bug of the handler
	at       atomic.Int32

	mu     sync.Mutex
	failed map[string]int // of messages that fail for a while
	parts  map[int64]int  // effects
	last   time.Time      // of an effect
	gap    time.Duration  // the longest without one
}

var errBug = errors.New("a bug of the handler")

func remainder(id string, of uint32) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(id))
	return h.Sum32() % of
}

// bad is one message of a hundred, in a busy round one of five: it fails until the bug is repaired.
func bad(id string, busy bool) bool {
	r := remainder(id, 100)
	return r == 0 || busy && r < 20
}

// slow is one message of fifty in a busy round: it fails twice, and its key is parked for 1.5 s. More of them alone, or
// for longer, keep a second from the full rate for 5 s.
func slow(id string) bool { return remainder(id, 50) == 49 }

func (s *service) fails(id string) error {
	if bad(id, s.busy) && !s.repaired.Load() {
		return classify.Permanent(errBug)
	}
	if !s.busy || !slow(id) {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed[id]++; s.failed[id] <= 2 {
		return errors.New("not yet")
	}
	return nil
}

// handle writes an effect, and counts it in the account of its key. A number that is not above the latest one of its
// key came out of order.
func (s *service) handle(msg *message.Message) error {
	number, err := strconv.Atoi(msg.UUID)
	if err != nil {
		return classify.Permanent(err)
	}
	if err := s.fails(msg.UUID); err != nil {
		return err
	}
	latest := number
	if bad(msg.UUID, s.busy) { // its letter comes again behind later ones
		latest = 1 << 30
	}
	ctx, tx := msg.Context(), idempotency.Tx(msg.Context())
	if _, err := tx.ExecContext(ctx, s.databases.statement(`INSERT INTO effects (id) VALUES ($1)`),
		msg.UUID); err != nil {
		return err
	}
	count := fmt.Sprintf(`UPDATE accounts SET effects = effects + 1, wrong = wrong + CASE WHEN latest > %[1]d THEN 1 ELSE 0 END,
		latest = CASE WHEN %[1]d < 1073741824 THEN %[1]d ELSE latest END WHERE account = %[2]d`, latest, s.accountOf(number))
	if _, err = tx.ExecContext(ctx, count); err == nil {
		s.effect(time.Now())
	}
	return err
}

// accountOf is the key's in a busy round, where the order counts. In others both instances want each account.
func (s *service) accountOf(number int) int {
	if s.busy {
		return number % accounts
	}
	return number / accounts % accounts
}

// part of a second in which effects are counted, in milliseconds.
const part = 100

func (s *service) effect(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.parts[now.UnixMilli()/part]++
	if !s.last.IsZero() {
		s.gap = max(s.gap, now.Sub(s.last))
	}
	s.last = now
}

// start starts an instance, and returns what closes it.
func (s *service) start(ctx context.Context, instance int) (stop func() error, err error) {
	db, err := s.databases.open(s.topic, instance)
	if err != nil {
		return nil, err
	}
	config := spillway.Config{Service: "shop", DB: db, Queue: poison.QueueConfig{Origin: s.origin}, Logger: s.logger}
	if s.tries > 0 {
		config.Retry.PerClass = map[classify.Class]middleware.Policy{classify.ClassTransient: {Attempts: s.tries}}
	}
	if s.busy {
		config.Purge = &idempotency.PurgeConfig{Retention: 15 * 24 * time.Hour, Every: 2 * time.Second}
		if s.keyed {
			config.Ordered = &spillway.OrderedConfig{Delays: []time.Duration{time.Second / 2, time.Second}}
			config.Purge.Horizon = 14 * 24 * time.Hour
		}
	}
	channel, err := spillway.New(ctx, config)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: 20 * time.Second}, s.logger)
	if err != nil {
		return nil, err
	}
	channel.Attach(router)
	end := func() error { return nil }
	if s.busy {
		if end, err = s.work(ctx, channel, router); err != nil {
			return nil, err
		}
	}
	sub, err := s.subscribe(s.topic)
	if err != nil {
		return nil, err
	}
	router.AddConsumerHandler("ship", s.topic, sub, s.handle)
	ended := make(chan error, 1)
	go func() { ended <- router.Run(context.Background()) }()
	select {
	case <-router.Running():
	case err := <-ended:
		return nil, err
	}
	return func() error { return errors.Join(router.Close(), <-ended, end(), db.Close()) }, nil
}

// What a round is at.
const (
	breaking int32 = iota
	healing
	healed
)

// publish publishes each id until it is confirmed, as long as the plan says, and again while the full rate is not back.
// Those of an account go one after another.
func (s *service) publish(ctx context.Context, p *plan) (ids []string, err error) {
	pub, err := s.publisher()
	if err != nil {
		return nil, err
	}
	var work sync.WaitGroup
	var lanes [accounts]chan string
	for i := range lanes {
		lanes[i] = make(chan string, 200)
		work.Go(func() {
			for id := range lanes[i] {
				s.confirmed(ctx, pub, id, fmt.Sprint(i))
			}
		})
	}
	tick := time.NewTicker(time.Second / time.Duration(p.rate))
	defer tick.Stop()
	for until := time.Now().Add(p.lasts); ctx.Err() == nil; <-tick.C {
		over := !time.Now().Before(until)
		if at := s.at.Load(); over && at == healed {
			break
		} else if over && at == breaking {
			continue
		}
		id := fmt.Sprint(len(ids))
		ids = append(ids, id)
		lanes[(len(ids)-1)%accounts] <- id
	}
	for i := range lanes {
		close(lanes[i])
	}
	work.Wait()
	return ids, errors.Join(ctx.Err(), pub.Close())
}

// accountKey is the name of the metadata with the key of a message.
const accountKey = "account"

func (s *service) confirmed(ctx context.Context, pub message.Publisher, id, account string) {
	for ctx.Err() == nil {
		msg := message.NewMessage(id, []byte(`{"order":1}`))
		msg.Metadata.Set(accountKey, account)
		if pub.Publish(s.topic, msg) == nil || sleep(ctx, 100*time.Millisecond) != nil {
			return
		}
	}
}
