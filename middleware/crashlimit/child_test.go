package crashlimit

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/poison"
)

// order is what a consumer in a process of its own is told.
type order struct {
	Driver   string
	Address  string
	Receiver bool     // stands inside of the limit
	Deadly   []string // messages that end the process
	Outputs  bool     // it is the publisher of their outputs that ends it
	Die      bool     // as by SIGKILL, as soon as a letter has its place
	Stubborn bool     // handlers do not return
	Redrives string   // what the messages say of how often they were redriven
	Exit     bool     // when everything is done
	Signal   bool     // at SIGTERM
}

const deadlyExit = 42

// consume runs a router with a queue, the limit and perhaps a receiver, over a source that survives.
func (o order) consume() error {
	db, err := sql.Open(o.Driver, o.Address)
	if err != nil {
		return err
	}
	store, err := NewStore(context.Background(), db, "shop")
	if err != nil {
		return err
	}
	store.timeout = patience // a disk that stands still is no outage
	bind := store.db.Statement
	letters := sinkFunc(func(msg *message.Message) error {
		_, err := db.Exec(bind(`INSERT INTO letters (id, reason) VALUES (?, ?)`), msg.UUID, msg.Metadata["x-failure-reason"])
		if err == nil && o.Die {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
		return err
	})
	queue, err := poison.NewQueue(letters, poison.QueueConfig{})
	if err != nil {
		return err
	}
	logger := watermill.NewStdLoggerWithOut(os.Stderr, false, false)
	limit, err := build(options{store: store, within: patience, Config: Config{Heartbeat: 50 * time.Millisecond}})
	if err != nil {
		return err
	}
	closeTimeout := 20 * time.Second
	if o.Stubborn {
		closeTimeout = 200 * time.Millisecond
	}
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: closeTimeout}, watermill.NopLogger{})
	if err != nil {
		return err
	}
	router.AddPlugin(limit.Plugin)
	router.AddMiddleware(queue.Middleware, limit.Middleware)
	write := func(msg *message.Message) error {
		_, err := db.Exec(bind(`INSERT INTO effects (id) VALUES (?)`), msg.UUID)
		return err
	}
	if o.Receiver {
		keys, err := idempotency.NewStore(context.Background(), db, "shop")
		if err != nil {
			return err
		}
		receiver, err := idempotency.NewReceiver(keys, idempotency.ReceiverConfig{})
		if err != nil {
			return err
		}
		router.AddMiddleware(receiver.Middleware)
		write = func(msg *message.Message) error {
			_, err := idempotency.Tx(msg.Context()).Exec(bind(`INSERT INTO effects (id) VALUES (?)`), msg.UUID)
			return err
		}
	}
	source := newSource(db, bind, logger)
	source.redrives = o.Redrives
	end := func(id string) {
		if slices.Contains(o.Deadly, id) {
			time.Sleep(10 * time.Millisecond) // so that others are in flight
			os.Exit(deadlyExit)
		}
	}
	handle := func(msg *message.Message) error {
		if o.Stubborn {
			fmt.Println("handling " + msg.UUID)
			select {}
		}
		if !o.Outputs {
			end(msg.UUID)
		}
		time.Sleep(3 * time.Millisecond)
		return write(msg)
	}
	if o.Outputs {
		publisher := sinkFunc(func(msg *message.Message) error { end(string(msg.Payload)); return nil })
		router.AddHandler("billing", "orders", source, "invoices", publisher, func(msg *message.Message) ([]*message.Message, error) {
			return []*message.Message{message.NewMessage("", []byte(msg.UUID))}, handle(msg)
		})
	} else {
		router.AddConsumerHandler("billing", "orders", source, handle)
	}
	ctx := context.Background()
	if o.Signal {
		var stop context.CancelFunc
		ctx, stop = signal.NotifyContext(ctx, syscall.SIGTERM)
		defer stop()
	}
	ended := make(chan error, 1)
	go func() { ended <- router.Run(ctx) }()
	select {
	case <-router.Running():
	case err := <-ended:
		return err
	}
	fmt.Println("running")
	switch {
	case o.Signal:
		return <-ended
	case o.Exit:
		<-source.done
	default:
		_, _ = io.Copy(io.Discard, os.Stdin)
	}
	return errors.Join(router.Close(), <-ended)
}

// sinkFunc is a publisher.
type sinkFunc func(*message.Message) error

func (sinkFunc) Close() error { return nil }

func (f sinkFunc) Publish(_ string, messages ...*message.Message) error {
	for _, msg := range messages {
		if err := f(msg); err != nil {
			return err
		}
	}
	return nil
}

// source is a subscriber of a table, which delivers eight at once, in the same order each time, until they are acked.
type source struct {
	db     *sql.DB
	bind   func(string) string
	logger watermill.LoggerAdapter
	// redrives is what the messages have as x-redrive-count.
	redrives string
	done     chan struct{} // closed when everything is acked
	ctx      context.Context
	stop     context.CancelFunc
	all      sync.WaitGroup
}

func newSource(db *sql.DB, bind func(string) string, logger watermill.LoggerAdapter) *source {
	s := &source{db: db, bind: bind, logger: logger, done: make(chan struct{})}
	s.ctx, s.stop = context.WithCancel(context.Background())
	return s
}

func (s *source) Close() error {
	s.stop()
	s.all.Wait()
	return nil
}

func (s *source) Subscribe(ctx context.Context, _ string) (<-chan *message.Message, error) {
	context.AfterFunc(ctx, s.stop)
	out, todo := make(chan *message.Message), make(chan string)
	s.all.Go(func() {
		defer close(out)
		var workers sync.WaitGroup
		for range 8 {
			workers.Go(func() {
				for id := range todo {
					s.deliver(out, id)
				}
			})
		}
		ids, err := s.waiting()
		if err != nil {
			s.logger.Error("source", err, nil)
		}
		for _, id := range ids {
			select {
			case todo <- id:
			case <-s.ctx.Done():
			}
		}
		close(todo)
		workers.Wait()
		if s.ctx.Err() == nil {
			close(s.done)
		}
		<-s.ctx.Done()
	})
	return out, nil
}

func (s *source) waiting() (ids []string, err error) {
	rows, err := s.db.Query(`SELECT id FROM todo WHERE done = 0 ORDER BY id`)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, rows.Err()
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
