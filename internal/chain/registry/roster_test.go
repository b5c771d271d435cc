package registry_test

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"go.uber.org/goleak"

	"github.com/watermill-spillway/spillway/internal/chain/registry"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func router(t *testing.T, known *registry.Registry, handlers ...string) (*message.Router, func(name string)) {
	t.Helper()
	r := testkit.Must(message.NewRouter(message.RouterConfig{CloseTimeout: 20 * time.Second}, watermill.NopLogger{}))
	known.Expect(r)
	r.AddPlugin(func(r *message.Router) error { known.Join(r); known.Join(r); return nil })
	source := gochannel.NewGoChannel(gochannel.Config{}, nil)
	add := func(name string) {
		r.AddConsumerHandler(name, "orders", source, func(*message.Message) error { return nil })
	}
	for _, name := range handlers {
		add(name)
	}
	return r, add
}

func run(t *testing.T, r *message.Router) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- r.Run(context.Background()) }()
	<-r.Running()
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// Conventions: a name can be judged when each router runs, and no longer when a handler was added to one that runs: its
// name is not known.
func TestRegistry(t *testing.T) {
	var known registry.Registry
	complete := func(want bool) {
		t.Helper()
		if got := known.Complete(); got != want {
			t.Errorf("complete: %v", got)
		}
	}
	complete(false)
	one, add := router(t, &known, "billing", "shipping")
	other, _ := router(t, &known, "prices")
	run(t, one)
	complete(false)
	run(t, other)
	complete(true)
	testkit.Check(t, known.Has("billing") && known.Has("prices") && !known.Has("biling"), "%v", &known)
	if got := known.String(); got != `"billing", "prices", "shipping"` {
		t.Error(got)
	}
	add("later")
	testkit.NoError(t, one.RunHandlers(t.Context()))
	complete(false)
}

// Bad input: an error lists at most so many names.
func TestRegistryText(t *testing.T) {
	var known registry.Registry
	if got := known.String(); got != "none" {
		t.Error(got)
	}
	var names []string
	for i := range 30 {
		names = append(names, strconv.Itoa(i)+strings.Repeat("x", 200))
	}
	r, _ := router(t, &known, names...)
	run(t, r)
	if got := known.String(); len(got) > 20*120 || !strings.HasSuffix(got, "and 10 more") {
		t.Error(got)
	}
}
