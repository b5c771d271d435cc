package lifecycle_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"go.uber.org/goleak"

	"github.com/watermill-spillway/spillway/internal/chain/lifecycle"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

// Watermill leaves a goroutine behind when a router fails to start.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/ThreeDotsLabs/watermill/message.(*Router).watchAllHandlersStopped.func1"))
}

// run runs a router with a consumer and a handler that produces, publishes to both, and ends as end says.
func run(t *testing.T, plugin message.RouterPlugin, end func(*message.Router, context.CancelFunc)) error {
	t.Helper()
	router := testkit.Must(message.NewRouter(message.RouterConfig{}, watermill.NopLogger{}))
	router.AddPlugin(plugin)
	ps := gochannel.NewGoChannel(gochannel.Config{}, watermill.NopLogger{})
	handled := make(chan string, 4)
	router.AddConsumerHandler("consumes", "b", ps, func(msg *message.Message) error { handled <- msg.UUID; return nil })
	// The publisher is another instance: the handler that stops first closes it.
	router.AddHandler("produces", "a", ps, "b", struct{ message.Publisher }{ps}, func(msg *message.Message) ([]*message.Message, error) {
		return []*message.Message{msg.Copy()}, nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ran := make(chan error, 1)
	go func() { ran <- router.Run(ctx) }()
	select {
	case err := <-ran:
		return err
	case <-router.Running():
	}
	testkit.NoError(t, ps.Publish("a", message.NewMessage("1", nil)))
	testkit.Equal(t, "handled", <-handled, "1")
	end(router, cancel)
	return <-ran
}

// Features D10, I8: what runs beside a router starts before its handlers, once, and has stopped when the router has.
func TestLife(t *testing.T) {
	for name, end := range map[string]func(*message.Router, context.CancelFunc){
		"Close":          func(r *message.Router, _ context.CancelFunc) { _ = r.Close() },
		"end of context": func(_ *message.Router, cancel context.CancelFunc) { cancel() },
	} {
		t.Run(name, func(t *testing.T) {
			started, stopped := 0, 0
			l := lifecycle.New(func() error { started++; return nil }, func() { stopped++ })
			for round := 1; round <= 2; round++ { // a Lifecycle may follow one router after another
				err := run(t, l.Plugin, func(r *message.Router, cancel context.CancelFunc) {
					testkit.Check(t, started == round && stopped == round-1,
						"round %d: started %d times, stopped %d times while it ran", round, started, stopped)
					end(r, cancel)
				})
				testkit.Check(t, err == nil && started == round && stopped == round,
					"round %d: started %d times, stopped %d times: %v", round, started, stopped, err)
			}
		})
	}
}

type refuses struct{ message.Subscriber }

func (refuses) Subscribe(context.Context, string) (<-chan *message.Message, error) {
	return nil, errors.New("no such topic")
}
func (refuses) Close() error { return nil }

// Features D10, I8: nothing runs beside a router that ended before its handlers subscribed.
func TestDecoratorFails(t *testing.T) {
	running := 0
	l := lifecycle.New(func() error { running++; return nil }, func() { running-- })
	fails := func(message.Subscriber) (message.Subscriber, error) { return nil, errors.New("not decorated") }
	before := func(router *message.Router) error { router.AddSubscriberDecorators(fails); return l.Plugin(router) }
	after := func(router *message.Router) error {
		defer router.AddSubscriberDecorators(fails)
		return l.Plugin(router)
	}
	for _, plugin := range []message.RouterPlugin{before, after} {
		err := run(t, plugin, nil)
		testkit.Check(t, err != nil && running == 0, "runs: %d, %v", running, err)
	}
}

// again subscribes once more when a subscription has failed, and in vain while it has one.
type again struct{ message.Subscriber }

func (a again) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	messages, err := a.Subscriber.Subscribe(ctx, topic)
	if err != nil {
		messages, err = a.Subscriber.Subscribe(ctx, topic)
	}
	_, _ = a.Subscriber.Subscribe(ctx, "fails")
	return messages, err
}

type flaky struct {
	message.Subscriber
	calls atomic.Int32
}

func (f *flaky) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	if topic == "fails" || f.calls.Add(1) == 1 {
		return nil, errors.New("not now")
	}
	return f.Subscriber.Subscribe(ctx, topic)
}

// subscribes and closes write down what happens to a handler.
type subscribes struct {
	message.Subscriber
	happened *[]string
}

func (s subscribes) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	*s.happened = append(*s.happened, "subscribe")
	return s.Subscriber.Subscribe(ctx, topic)
}

type closes struct {
	message.Publisher
	happened *[]string
}

func (c closes) Close() error {
	*c.happened = append(*c.happened, "close")
	return nil
}

// Features D10, I8: what runs beside a router runs before its first subscription and after its last publisher is
// closed, and when it could not start, no handler subscribes; the next router tries again.
func TestOrder(t *testing.T) {
	var happened []string
	notYet := errors.New("not yet")
	l := lifecycle.New(func() error { happened = append(happened, "start"); return notYet }, func() { happened = append(happened, "stop") })
	for range 2 {
		ps := gochannel.NewGoChannel(gochannel.Config{}, watermill.NopLogger{})
		router := testkit.Must(message.NewRouter(message.RouterConfig{}, watermill.NopLogger{}))
		router.AddPlugin(l.Plugin)
		router.AddHandler("relays", "a", subscribes{ps, &happened}, "b", closes{ps, &happened}, message.PassthroughHandler)
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			select {
			case <-router.Running():
				cancel()
			case <-ctx.Done():
			}
		}()
		testkit.Is(t, router.Run(ctx), notYet)
		cancel()
		_ = ps.Close()
		notYet = nil
	}
	testkit.Check(t, slices.Equal(happened, []string{"start", "start", "subscribe", "close", "stop"}), "%q", happened)
}

// Features D10, I8: a router that fails to start has ended too, and what ran beside it with it. Routers that start at
// once, with decorators that subscribe as often as they like, are told apart.
func TestRoutersAtOnce(t *testing.T) {
	const routers = 8
	var running, most atomic.Int32
	l := lifecycle.New(func() error { most.Store(max(most.Load(), running.Add(1))); return nil }, func() { running.Add(-1) })
	var ready, decorated, all sync.WaitGroup
	var closing sync.Mutex
	decorated.Add(routers)
	ready.Add(routers / 2) // of the others a handler cannot subscribe
	for i := range routers {
		all.Go(func() {
			ps := gochannel.NewGoChannel(gochannel.Config{}, watermill.NopLogger{})
			router := testkit.Must(message.NewRouter(message.RouterConfig{}, watermill.NopLogger{}))
			router.AddPlugin(l.Plugin)
			together := sync.OnceFunc(func() { decorated.Done(); decorated.Wait() }) // between the publisher and the subscriber
			router.AddSubscriberDecorators(func(sub message.Subscriber) (message.Subscriber, error) {
				together()
				return &flaky{Subscriber: sub}, nil
			})
			router.AddPlugin(func(r *message.Router) error {
				r.AddSubscriberDecorators(func(sub message.Subscriber) (message.Subscriber, error) { return again{sub}, nil })
				return nil
			})
			name := strconv.Itoa(i)
			router.AddConsumerHandler(name, "a", ps, func(*message.Message) error { return nil })
			if i%2 == 1 {
				router.AddConsumerHandler("fails "+name, "b", refuses{}, func(*message.Message) error { return nil })
			}
			all.Go(func() {
				if i%2 == 1 {
					return
				}
				<-router.Running()
				ready.Done()
				ready.Wait()
				closing.Lock()
				defer closing.Unlock()
				testkit.Equal(t, "runs while a router does", running.Load(), 1)
				_ = router.Close()
			})
			testkit.Check(t, (router.Run(context.Background()) != nil) == (i%2 == 1), "router %d runs, or does not", i)
			_ = ps.Close() // ends the handler that started where another did not
		})
	}
	all.Wait()
	testkit.Eventually(t, "nothing runs in the end", func() bool { return running.Load() == 0 })
	testkit.Equal(t, "runs at the same time", most.Load(), 1)
}

// Features D10, I8: the router's end waits for what runs beside it, which runs again with the next router.
func TestRunEndsWithTheRouter(t *testing.T) {
	runs, ended := 0, 0
	life := lifecycle.Run(func(ctx context.Context) {
		runs++
		<-ctx.Done()
		ended++
	})
	for round := 1; round <= 2; round++ {
		testkit.NoError(t, run(t, life.Plugin, func(r *message.Router, _ context.CancelFunc) { _ = r.Close() }))
		testkit.Check(t, runs == round && ended == round, "%d runs, %d ended", runs, ended)
	}
}
