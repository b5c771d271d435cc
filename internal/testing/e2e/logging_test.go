package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/middleware"
	"github.com/watermill-spillway/spillway/poison"
)

// logged runs a message through a channel and a handler on a router with logger, until a letter or a success.
func logged(t *testing.T, config spillway.Config, logger watermill.LoggerAdapter, handle message.NoPublishHandlerFunc) {
	t.Helper()
	done := make(chan struct{}, 1)
	letters := gochannel.NewGoChannel(gochannel.Config{}, nil)
	config.Publisher = letters
	config.Queue.Hooks.OnDeadLetter = func(context.Context, poison.Letter) { done <- struct{}{} }
	config.Queue.Hooks.OnDiscard = config.Queue.Hooks.OnDeadLetter
	config.Retry.Backoff = middleware.Backoff{Initial: time.Millisecond}
	dlc := testkit.Must(spillway.New(t.Context(), config))
	orders := gochannel.NewGoChannel(gochannel.Config{}, nil)
	stop := testkit.RunRouter(t, logger, func(router *message.Router) {
		dlc.Attach(router)
		router.AddConsumerHandler("billing", "orders", orders, func(msg *message.Message) error {
			err := handle(msg)
			if err == nil {
				done <- struct{}{}
			}
			return err
		})
	})
	testkit.NoError(t, orders.Publish("orders", message.NewMessage("m-1", []byte("the payload"))))
	<-done
	stop()
	testkit.Is(t, letters.Close(), nil)
}

// Feature O5, promise P1: a dead letter is one Error line with its cause, its class and reason and where it is; a retry
// is an Info line with its cause; without a Logger they go to the router's.
func TestErrorsAreLogged(t *testing.T) {
	long := strings.Repeat("x", 100_000)
	for name, c := range map[string]struct {
		config  spillway.Config
		handle  message.NoPublishHandlerFunc
		retries int
		level   watermill.LogLevel
		text    string // of the line
		cause   string
		fields  watermill.LogFields
	}{
		"panic": {
			handle: func(*message.Message) error { panic("card 4242 is secret") },
			level:  watermill.ErrorLogLevel, text: "Message dead-lettered", cause: "panic: card **** is secret",
			fields: watermill.LogFields{"class": "permanent", "reason": "panic"},
		},
		"unknown": {
			handle: func(msg *message.Message) error { msg.UUID = "changed"; return errors.New("card 4242 refused" + long) },
			config: spillway.Config{Retry: middleware.RetryConfig{Attempts: 3}}, retries: 2,
			level: watermill.ErrorLogLevel, text: "Message dead-lettered", cause: "card **** refused",
			fields: watermill.LogFields{"class": "unknown", "reason": "unknown_max_retries"},
		},
		"described": {
			handle: func(*message.Message) error {
				return classify.Permanent(errors.New("card 4242 refused"), classify.Description("call the bank"), classify.Reason("card_refused"))
			},
			level: watermill.ErrorLogLevel, text: "Message dead-lettered", cause: "card **** refused",
			fields: watermill.LogFields{"class": "permanent", "reason": "card_refused"},
		},
		"discarded": {
			handle: func(*message.Message) error { return classify.Discard(errors.New("card 4242 is a copy")) },
			level:  watermill.InfoLogLevel, text: "Message discarded, because its error is marked so", cause: "card **** is a copy",
			fields: watermill.LogFields{"class": "discard"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			logger := &testkit.Log{}
			c.config.Privacy = masking(t, "4242", "****")
			logged(t, c.config, logger, c.handle)
			want := watermill.LogFields{"message_id": "m-1", "topic": "orders", "handler": "billing"}
			if c.level == watermill.ErrorLogLevel {
				want["dead_letter_topic"] = "orders.dlq"
			}
			retries := 0
			for _, line := range append(logger.Lines(watermill.InfoLogLevel, ""), logger.Errors()...) {
				all := fmt.Sprint(line.Text, line.Err, line.Fields)
				testkit.Check(t, !strings.Contains(all, "4242") && !strings.Contains(all, "payload") &&
					len(all) <= 2<<10, "level %d: %.300s", line.Level, all)
				cause := fmt.Sprint(line.Err, line.Fields["error"])
				if line.Text == "The handler failed and is called again" && line.Level == watermill.InfoLogLevel {
					retries++
					has(t, line.Fields, watermill.LogFields{"message_id": "m-1", "topic": "orders", "handler": "billing", "attempt": retries})
					testkit.Check(t, strings.Contains(cause, c.cause), "a retry has the cause %.100q", cause)
				}
				if line.Text != c.text {
					continue
				}
				has(t, line.Fields, want)
				has(t, line.Fields, c.fields)
				testkit.Check(t, line.Level == c.level && strings.Contains(cause, c.cause),
					"level %d, cause %.100q", line.Level, cause)
			}
			wantLines := map[watermill.LogLevel]int{watermill.ErrorLogLevel: 1}[c.level]
			testkit.Check(t, len(logger.Errors()) == wantLines && retries == c.retries,
				"%d Error lines, %d retries: %v", len(logger.Errors()), retries, logger.Errors())
		})
	}
}

func has(t *testing.T, fields, want watermill.LogFields) {
	t.Helper()
	for key, value := range want {
		testkit.Check(t, fields[key] == value, "%s is %v, want %v", key, fields[key], value)
	}
}

// Feature O5: a Logger of the Config's own is used in place of the router's.
func TestLoggerOfItsOwn(t *testing.T) {
	own, routers := &testkit.Log{}, &testkit.Log{}
	logged(t, spillway.Config{Logger: own}, routers, func(*message.Message) error {
		return classify.Permanent(errors.New("refused"), classify.Reason("refused"))
	})
	testkit.Check(t, len(own.Errors()) == 1 && len(routers.Errors()) == 0,
		"own %v, the router's %v", own.Errors(), routers.Errors())
}

// Feature O5: a storm of 3,000 failures on a real router writes few lines.
func TestStormOfFailures(t *testing.T) {
	const storm = 3_000
	log := &testkit.Log{}
	letters, orders := gochannel.NewGoChannel(gochannel.Config{}, nil), gochannel.NewGoChannel(gochannel.Config{}, nil)
	var placed atomic.Int64
	config := spillway.Config{Publisher: letters, Logger: log}
	config.Retry = middleware.RetryConfig{Attempts: 2, Backoff: middleware.Backoff{Initial: time.Microsecond, Max: time.Microsecond}}
	config.Queue.Hooks.OnDeadLetter = func(context.Context, poison.Letter) { placed.Add(1) }
	dlc := testkit.Must(spillway.New(t.Context(), config))
	stop := testkit.RunRouter(t, nil, func(router *message.Router) {
		dlc.Attach(router)
		router.AddConsumerHandler("billing", "orders", orders, func(*message.Message) error { return errors.New("the bank is unavailable") })
	})
	for n := range storm {
		testkit.NoError(t, orders.Publish("orders", message.NewMessage(fmt.Sprint(n), nil)))
		for int64(n)-placed.Load() > 100 {
			time.Sleep(time.Millisecond)
		}
	}
	testkit.Eventually(t, "all are dead letters", func() bool { return placed.Load() == storm })
	stop()
	testkit.NoError(t, letters.Close())
	retries, dead := log.Lines(watermill.InfoLogLevel, "is called again"), log.Lines(watermill.ErrorLogLevel, "dead-lettered")
	for name, lines := range map[string][]testkit.Line{"retries": retries, "dead letters": dead} {
		n := testkit.StandsFor(lines)
		testkit.Check(t, n == storm, "the lines of %s stand for %d", name, n)
		if n := len(lines); n > 30 { // eleven, and one for each minute that it takes
			t.Errorf("%d lines of %s", n, name)
		}
	}
}

// Feature O5: routers attach the same channel at once.
func TestAttachAtOnce(t *testing.T) {
	dlc := testkit.Must(
		spillway.New(t.Context(), spillway.Config{Publisher: gochannel.NewGoChannel(gochannel.Config{}, nil)}))
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			router, err := message.NewRouter(message.RouterConfig{}, &testkit.Log{})
			if err != nil {
				t.Error(err)
				return
			}
			dlc.Attach(router)
			testkit.Is(t, dlc.Queue().Place(message.NewMessage("m", nil), errors.New("failed")), nil)
		})
	}
	all.Wait()
}
