package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/idempotency"
)

// consumes is the variable with the plan of a consumer.
const consumes = "SPILLWAY_ORDER_CONSUMER"

// process is a consumer in a process of its own.
type process struct {
	*os.Process
	ended chan error // closed when it has ended
}

// start starts this program as a consumer.
func (p *plan) start() (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	line, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self)
	cmd.Env, cmd.Stderr = append(os.Environ(), consumes+"="+string(line)), os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	started := &process{cmd.Process, make(chan error, 1)}
	go func() { started.ended <- cmd.Wait(); close(started.ended) }()
	return started, nil
}

// end stops a consumer, which may be stopped already.
func (p *process) end() error {
	_ = p.Signal(syscall.SIGCONT)
	_ = p.Signal(syscall.SIGTERM)
	return <-p.ended
}

func consume(p *plan) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	db, err := sql.Open(p.Driver, p.ConsumerDSN)
	if err != nil {
		return err
	}
	db.SetMaxOpenConns(24)
	db.SetMaxIdleConns(24)
	// The handler counts failures outside of its transaction: from the same pool, which the transactions can hold whole,
	// it would wait for itself.
	counts, err := sql.Open(p.Driver, p.ConsumerDSN)
	if err != nil {
		return err
	}
	defer counts.Close()
	counts.SetMaxOpenConns(8)
	from, err := brokerOf(p)
	if err != nil {
		return err
	}
	config := spillway.Config{Service: "shop", DB: db, Ordered: &spillway.OrderedConfig{Delays: p.Delays}}
	if p.Without {
		config.Ordered = nil
	}
	subscriber, publisher, err := from.consume(&config)
	if err != nil {
		return err
	}
	channel, err := spillway.New(ctx, config)
	if err != nil {
		return err
	}
	var logger watermill.LoggerAdapter = watermill.NopLogger{}
	if os.Getenv("VERBOSE") != "" {
		logger = watermill.NewStdLogger(false, false)
	}
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: 20 * time.Second}, logger)
	if err != nil {
		return err
	}
	channel.Attach(router)
	handler := func(msg *message.Message) ([]*message.Message, error) {
		if p.Bank != "" {
			return p.book(from, msg)
		}
		return p.handle(counts, from, msg)
	}
	if p.Without {
		_, err = channel.Stages().AddHandler(router, "billing", p.Topic, subscriber, p.outputs(), publisher, handler)
	} else {
		router.AddHandler("billing", p.Topic, subscriber, p.outputs(), publisher, handler)
	}
	if err != nil {
		return err
	}
	return router.Run(ctx)
}

// laneKey is what an output says of the sequence of its message: the key, within its partition.
const laneKey = "lane"

var errUnavailable = errors.New("the downstream is unavailable")

// handle fails as the plan says, and otherwise writes an effect and returns an output.
func (p *plan) handle(db *sql.DB, from broker, msg *message.Message) ([]*message.Message, error) {
	time.Sleep(p.Work)
	if fate := p.fate(msg.UUID); fate < 0 {
		return nil, classify.Permanent(errors.New("the order is wrong"))
	} else if fate > 0 {
		if times, err := p.failed(db, msg.UUID); err != nil {
			return nil, err
		} else if times <= fate {
			if p.isSparse(msg.UUID) {
				return nil, classify.Transient(errUnavailable, classify.RetryAfter(silence+rand.N(silence/10)))
			}
			return nil, errUnavailable
		}
	}
	number, err := strconv.Atoi(string(msg.Payload))
	if err != nil {
		return nil, err
	}
	key, _, _ := strings.Cut(msg.UUID, "/")
	lane := fmt.Sprint(key, "@", from.partition(msg))
	insert := `INSERT INTO effects (id, lane, number) VALUES ($1, $2, $3)`
	if p.Driver == "mysql" {
		insert = `INSERT INTO effects (id, lane, number) VALUES (?, ?, ?)`
	}
	if _, err := idempotency.Tx(msg.Context()).ExecContext(msg.Context(), insert, msg.UUID, lane, number); err != nil {
		return nil, err
	}
	out := message.NewMessage(msg.UUID, message.Payload(fmt.Sprint(number)))
	out.Metadata.Set(laneKey, lane)
	return []*message.Message{out}, nil
}

// failed counts attempts, outside of the transaction.
func (p *plan) failed(db *sql.DB, id string) (times int, err error) {
	upsert, read := `INSERT INTO failures (id, times) VALUES ($1, 1) ON CONFLICT (id) DO UPDATE SET times = failures.times + 1`,
		`SELECT times FROM failures WHERE id = $1`
	if p.Driver == "mysql" {
		upsert, read = `INSERT INTO failures (id, times) VALUES (?, 1) ON DUPLICATE KEY UPDATE times = times + 1`,
			`SELECT times FROM failures WHERE id = ?`
	}
	if _, err := db.Exec(upsert, id); err != nil {
		return 0, err
	}
	return times, db.QueryRow(read, id).Scan(&times)
}
