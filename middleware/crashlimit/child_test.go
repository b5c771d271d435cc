package crashlimit

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/child"
	"github.com/watermill-spillway/spillway/poison"
)

// order is what a consumer in a process of its own is told.
type order struct {
	Driver   string
	Address  string
	Deadly   bool // the message ends the process
	Die      bool // as by SIGKILL, as soon as a letter has its place
	Stubborn bool // handlers do not return
	Open     bool // the offset stays where it is: each process gets all messages, and acks commit nothing
	Payload  string
	Redrives string // what the message says of how often it was redriven
	Exit     bool   // when everything is done, not when its input ends
}

const deadlyExit = 42

// consume runs a router with a queue and the limit, over a source that survives.
func (o order) consume() error {
	ctx, stop := context.WithCancel(context.Background())
	if !o.Exit {
		ctx, stop = child.Context()
	}
	defer stop()
	db := testkit.Must(sql.Open(o.Driver, o.Address))
	store := testkit.Must(NewSQLStore(ctx, db, "shop"))
	queue := testkit.Must(poison.NewQueue(sinkFunc(func(msg *message.Message) error {
		_, err := db.Exec(fmt.Sprintf(`INSERT INTO letters (id, reason) VALUES ('%s', '%s')`, msg.UUID,
			msg.Metadata["x-failure-reason"]))
		if err == nil && o.Die {
			child.Kill()
		}
		return err
	}), poison.QueueConfig{}))
	limit := testkit.Must(build(options{within: patience, Config: Config{Store: store, Heartbeat: 50 * time.Millisecond}}))
	routerConfig := message.RouterConfig{CloseTimeout: 20 * time.Second}
	if o.Stubborn {
		routerConfig.CloseTimeout = 200 * time.Millisecond
	}
	router := testkit.Must(message.NewRouter(routerConfig, watermill.NopLogger{}))
	router.AddPlugin(limit.Plugin)
	router.AddMiddleware(queue.Middleware, limit.Middleware)
	source := &source{db: db, payload: o.Payload, redrives: o.Redrives, open: o.Open, done: make(chan struct{})}
	router.AddConsumerHandler("billing", "orders", source, func(msg *message.Message) error {
		if o.Stubborn {
			fmt.Println("handling " + msg.UUID)
			select {}
		}
		if o.Open && msg.UUID != "a" {
			fmt.Println("handling " + msg.UUID)
			<-msg.Context().Done()
			return msg.Context().Err()
		}
		if o.Deadly {
			os.Exit(deadlyExit)
		}
		return testkit.Err(db.Exec(fmt.Sprintf(`INSERT INTO effects (id) VALUES ('%s')`, msg.UUID)))
	})
	if o.Exit {
		go func() { <-source.done; stop() }()
	}
	return router.Run(ctx)
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

// source is a subscriber of a table, whose message it delivers until it is acked.
type source struct {
	db       *sql.DB
	payload  string
	redrives string        // what the message has as x-redrive-count
	open     bool          // acks commit nothing
	done     chan struct{} // closed when it is acked
}

func (*source) Close() error { return nil }

func (s *source) Subscribe(ctx context.Context, _ string) (<-chan *message.Message, error) {
	out := make(chan *message.Message)
	go func() {
		defer close(out)
		todo := pairs(s.db, `SELECT id, id FROM todo WHERE done = 0`)
		for _, id := range slices.Sorted(maps.Keys(todo)) {
			s.deliver(ctx, out, id)
		}
		if ctx.Err() == nil {
			close(s.done)
		}
		<-ctx.Done()
	}()
	return out, nil
}

func (s *source) deliver(ctx context.Context, out chan<- *message.Message, id string) {
	for ctx.Err() == nil {
		msg := message.NewMessage(id, []byte(s.payload))
		if s.redrives != "" {
			msg.Metadata[poison.KeyRedriveCount] = s.redrives
		}
		msg.SetContext(ctx)
		select {
		case out <- msg:
		case <-ctx.Done():
			return
		}
		select {
		case <-msg.Acked():
			if s.open {
				return
			}
			if _, err := s.db.Exec(`UPDATE todo SET done = 1`); err == nil {
				return
			}
		case <-msg.Nacked():
		case <-ctx.Done():
			return
		}
	}
}
