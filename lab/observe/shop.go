package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/order/sequence"
	"github.com/watermill-spillway/spillway/middleware"
	"github.com/watermill-spillway/spillway/middleware/breaker"
	"github.com/watermill-spillway/spillway/middleware/crashlimit"
	"github.com/watermill-spillway/spillway/middleware/stages"
	"github.com/watermill-spillway/spillway/middleware/stages/delay"
	"github.com/watermill-spillway/spillway/observe/prom"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
)

// shop is a service with two instances. They share a database and a broker.
type shop struct {
	gate   *gate
	db     *sql.DB
	broker *gochannel.GoChannel
	faults faults

	one, two  *instance
	campaigns *campaigns.Campaigns
	closing   []func() error
}

// instance is a process of the service, if both were not in this one.
type instance struct {
	name    string
	metrics *prom.Metrics
	channel *spillway.Channel
	router  *message.Router
	page    *page
}

// topics are what the handlers of the shop read, and so what may be redriven.
var topics = []string{"orders", "mails", "parcels", "stock", "reports"}

func openShop(ctx context.Context, folder string) (s *shop, err error) {
	s = &shop{}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	file := "file:" + filepath.Join(folder, "shop.db") +
		"?_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)&_pragma=busy_timeout(5000)"
	if s.gate, s.db, err = openGate(file); err != nil {
		return s, err
	}
	s.atClose(s.db.Close)
	if _, err = sequence.NewStore(ctx, s.db, "shop"); err != nil { // so that the metrics follow it
		return s, err
	}
	s.broker = gochannel.NewGoChannel(gochannel.Config{OutputChannelBuffer: 100}, watermill.NopLogger{})
	s.atClose(s.broker.Close)
	if s.one, err = s.open(ctx, "shop-1"); err != nil {
		return s, err
	}
	if s.two, err = s.open(ctx, "shop-2"); err != nil {
		return s, err
	}
	return s, s.run(ctx)
}

// open makes an instance, whose channel has its metrics on a page of its own.
func (s *shop) open(ctx context.Context, name string) (*instance, error) {
	registry := prometheus.NewRegistry()
	metrics, err := prom.New(prom.Config{Registerer: registry, Interval: time.Second, MaxValues: 20})
	if err != nil {
		return nil, err
	}
	config := spillway.Config{
		Service: "shop", DB: s.db, Logger: watermill.NopLogger{},
		CrashLimit: &crashlimit.Config{Delivered: delivered},
		Retry: middleware.RetryConfig{Attempts: 3, Backoff: middleware.Backoff{Initial: 20 * time.Millisecond},
			Budget: &middleware.Budget{PerSecond: 1, TTL: time.Second}},
		Breaker: &breaker.Config{MinMessages: 10_000, MaxProbe: time.Second}, // a bug in one handler is no outage here
		Purge:   &idempotency.PurgeConfig{Retention: 2 * time.Second, Every: time.Second},
	}
	if name == "shop-2" { // which has the handler with stages
		waiting, err := delay.NewStore(ctx, s.db, config.Service)
		if err != nil {
			return nil, err
		}
		config.Stages = &stages.Config{
			Store:      waiting,
			Publisher:  refusing{open{s.broker}, &s.faults.comeback},
			Subscriber: func(string, string) (message.Subscriber, error) { return open{s.broker}, nil },
			Stages:     stages.Delays(time.Second, 2*time.Second),
		}
	}
	config.Observers = []spillway.Observer{metrics}
	channel, err := spillway.New(ctx, config)
	if err != nil {
		return nil, err
	}
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: 10 * time.Second}, watermill.NopLogger{})
	if err != nil {
		return nil, err
	}
	channel.Attach(router)
	p, err := openPage(registry)
	if err != nil {
		return nil, err
	}
	s.atClose(p.close)
	return &instance{name: name, metrics: metrics, channel: channel, router: router, page: p}, nil
}

// run adds the handlers, and starts both routers.
func (s *shop) run(ctx context.Context) (err error) {
	one, two := s.one.router, s.two.router
	one.AddHandler("billing", "orders", open{s.broker}, "invoices", refusing{open{s.broker}, &s.faults.invoices},
		s.faults.billing)
	one.AddConsumerHandler("mailer", "mails", open{s.broker}, s.faults.mailer)
	one.AddConsumerHandler("reporter", "reports", open{s.broker}, s.faults.reporter)
	two.AddConsumerHandler("shipping", "parcels", open{s.broker}, s.faults.shipping)
	if _, err := s.two.channel.Stages().AddConsumerHandler(two, "storage", "stock", open{s.broker},
		s.faults.storage); err != nil {
		return err
	}
	if s.campaigns, err = campaigns.New(ctx, s.one.channel.Letters(),
		campaigns.Config{Allow: topics, MaxRedrives: 10}); err != nil {
		return err
	}
	if err := errors.Join(s.one.metrics.Watch(ctx, s.one.channel, s.campaigns),
		s.two.metrics.Watch(ctx, s.two.channel)); err != nil {
		return err
	}
	worker, err := campaigns.NewWorker(s.campaigns, open{s.broker},
		campaigns.WorkerConfig{Poll: 200 * time.Millisecond})
	if err != nil {
		return err
	}
	one.AddPlugin(worker.Plugin)
	for _, i := range []*instance{s.one, s.two} {
		ended := make(chan error, 1)
		go func() { ended <- i.router.Run(context.WithoutCancel(ctx)) }()
		s.atClose(func() error { return errors.Join(i.router.Close(), <-ended) })
		select {
		case <-i.router.Running():
		case err := <-ended:
			ended <- nil
			return fmt.Errorf("%s: %w", i.name, errors.Join(err, errors.New("the router ended")))
		}
	}
	return nil
}

// publish sends a message to a topic. Fault says what is wrong with it.
func (s *shop) publish(topic, fault string, n int) error {
	for range n {
		msg := message.NewMessage(watermill.NewUUID(), []byte(`{}`))
		msg.Metadata.Set("fault", fault)
		if fault == "crash" {
			msg.Metadata.Set("deliveries", "25")
		}
		if err := s.broker.Publish(topic, msg); err != nil {
			return err
		}
	}
	return nil
}

// traffic publishes a sound message to each topic all the time. Now and then one fails for the moment, or comes twice.
func (s *shop) traffic(ctx context.Context) error {
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for n := 0; ; n++ {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
		for _, topic := range topics {
			if err := s.publish(topic, "", 1); err != nil {
				return err
			}
		}
		if n%10 == 0 {
			twice := message.NewMessage(watermill.NewUUID(), []byte(`{}`))
			if err := errors.Join(s.publish("stock", "later", 1),
				s.broker.Publish("reports", twice, twice.Copy())); err != nil {
				return err
			}
		}
	}
}

// atClose adds what close does, before what was added earlier.
func (s *shop) atClose(closing func() error) {
	s.closing = append([]func() error{closing}, s.closing...)
}

func (s *shop) close() (err error) {
	for _, closing := range s.closing {
		err = errors.Join(err, closing())
	}
	return err
}

// open stays open when a router closes it: several handlers have it.
type open struct{ *gochannel.GoChannel }

func (open) Close() error { return nil }

// Unwrap says that Close leaves what is inside open.
func (open) Unwrap() message.Publisher { return nil }

// refusing is a publisher that refuses while it is told so.
type refusing struct {
	message.Publisher
	refuses *atomic.Bool
}

func (r refusing) Publish(topic string, messages ...*message.Message) error {
	if r.refuses.Load() {
		return fmt.Errorf("topic %s: not authorized", topic)
	}
	return r.Publisher.Publish(topic, messages...)
}

// delivered is the broker's count of deliveries, as a quorum queue has it.
func delivered(msg *message.Message) (int, bool) {
	n, err := strconv.Atoi(msg.Metadata.Get("deliveries"))
	return n, err == nil
}
