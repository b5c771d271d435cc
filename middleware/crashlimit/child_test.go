package crashlimit

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/internal/testkit/child"
	"github.com/watermill-spillway/spillway/poison"
)

// order is what a consumer in a process of its own is told.
type order struct {
	Driver   string
	Address  string
	Receiver bool     // stands inside of the limit
	Deadly   []string // messages that end the process
	Die      bool     // as by SIGKILL, as soon as a letter has its place
	Stubborn bool     // handlers do not return
	Redrives string   // what the messages say of how often they were redriven
	Exit     bool     // when everything is done, not when its input ends
}

const deadlyExit = 42

// consume runs a router with a queue, the limit and perhaps a receiver, over a source that survives.
func (o order) consume() error {
	ctx, stop := context.WithCancel(context.Background())
	if !o.Exit {
		ctx, stop = child.Context()
	}
	defer stop()
	db := testkit.Must(sql.Open(o.Driver, o.Address))
	store := testkit.Must(NewStore(ctx, db, "shop"))
	store.timeout = patience // a disk that stands still is no outage
	bind := store.db.Statement
	queue := testkit.Must(poison.NewQueue(sinkFunc(func(msg *message.Message) error {
		_, err := db.Exec(bind(`INSERT INTO letters (id, reason) VALUES (?, ?)`), msg.UUID, msg.Metadata["x-failure-reason"])
		if err == nil && o.Die {
			child.Kill()
		}
		return err
	}), poison.QueueConfig{}))
	config := options{store: store, within: patience, Config: Config{Heartbeat: 50 * time.Millisecond}}
	limit := testkit.Must(build(config))
	routerConfig := message.RouterConfig{CloseTimeout: 20 * time.Second}
	if o.Stubborn {
		routerConfig.CloseTimeout = 200 * time.Millisecond
	}
	router := testkit.Must(message.NewRouter(routerConfig, watermill.NopLogger{}))
	router.AddPlugin(limit.Plugin)
	router.AddMiddleware(queue.Middleware, limit.Middleware)
	if o.Receiver {
		keys := testkit.Must(idempotency.NewStore(ctx, db, "shop"))
		router.AddMiddleware(testkit.Must(idempotency.NewReceiver(keys, idempotency.ReceiverConfig{})).Middleware)
	}
	source := &source{db: db, bind: bind, redrives: o.Redrives, done: make(chan struct{})}
	source.ctx, source.stop = context.WithCancel(context.Background())
	router.AddConsumerHandler("billing", "orders", source, func(msg *message.Message) error {
		if o.Stubborn {
			fmt.Println("handling " + msg.UUID)
			select {}
		}
		if slices.Contains(o.Deadly, msg.UUID) {
			time.Sleep(10 * time.Millisecond) // so that others are in flight
			os.Exit(deadlyExit)
		}
		time.Sleep(3 * time.Millisecond)
		write := db.Exec
		if o.Receiver {
			write = idempotency.Tx(msg.Context()).Exec
		}
		return testkit.Err(write(bind(`INSERT INTO effects (id) VALUES (?)`), msg.UUID))
	})
	ended := make(chan error, 1)
	go func() { ended <- router.Run(ctx) }()
	select {
	case <-router.Running():
		fmt.Println("running")
	case err := <-ended:
		return err
	}
	if o.Exit {
		<-source.done
		stop()
	}
	return <-ended
}

// sinkFunc is a publisher.
type sinkFunc func(*message.Message) error

func (sinkFunc) Close() error { return nil }

func (f sinkFunc) Publish(_ string, messages ...*message.Message) (err error) {
	for _, msg := range messages {
		err = errors.Join(err, f(msg))
	}
	return err
}

// source is a subscriber of a table, which delivers eight at once, in the same order each time, until they are acked.
type source struct {
	db       *sql.DB
	bind     func(string) string
	redrives string        // what the messages have as x-redrive-count
	done     chan struct{} // closed when everything is acked
	ctx      context.Context
	stop     context.CancelFunc
	all      sync.WaitGroup
}

func (s *source) Close() error {
	s.stop()
	s.all.Wait()
	return nil
}

func (s *source) Subscribe(ctx context.Context, _ string) (<-chan *message.Message, error) {
	context.AfterFunc(ctx, s.stop)
	ids := slices.Sorted(maps.Keys(pairs(s.db, `SELECT id, id FROM todo WHERE done = 0`)))
	out, todo := make(chan *message.Message), make(chan string, len(ids))
	for _, id := range ids {
		todo <- id
	}
	close(todo)
	var workers sync.WaitGroup
	for range 8 {
		workers.Go(func() {
			for id := range todo {
				s.deliver(out, id)
			}
		})
	}
	s.all.Go(func() {
		defer close(out)
		workers.Wait()
		if s.ctx.Err() == nil {
			close(s.done)
		}
		<-s.ctx.Done()
	})
	return out, nil
}

// deliver delivers a message again and again until it is acked.
func (s *source) deliver(out chan<- *message.Message, id string) {
	for s.ctx.Err() == nil {
		msg := message.NewMessage(id, nil)
		if s.redrives != "" {
			msg.Metadata[poison.KeyRedriveCount] = s.redrives
		}
		msg.SetContext(s.ctx)
		select {
		case out <- msg:
		case <-s.ctx.Done():
			return
		}
		select {
		case <-msg.Acked():
			if _, err := s.db.Exec(s.bind(`UPDATE todo SET done = 1 WHERE id = ?`), id); err == nil {
				return
			}
		case <-msg.Nacked():
		case <-s.ctx.Done():
			return
		}
	}
}
