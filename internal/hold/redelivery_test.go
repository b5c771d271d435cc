package hold

import (
	"context"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/upstream/decorated"
)

type silent struct{}

func (silent) Subscribe(context.Context, string) (<-chan *message.Message, error) { return nil, nil }
func (silent) Close() error                                                       { return nil }

type saying struct {
	silent
	after time.Duration
}

func (s saying) RedeliveryTime() time.Duration {
	if s.after == 999 {
		panic("no idea")
	}
	return s.after
}

type hidden struct {
	silent
	inside message.Subscriber
}

type embedding struct{ message.Subscriber }

type around struct {
	silent
	of message.Subscriber
}

func (a around) Unwrap() message.Subscriber { return a.of }

// Redelivery: what a subscriber says is found through decorators, Watermill's own among them; the stock ones are known.
func TestRedeliveryOf(t *testing.T) {
	router := func(sub message.Subscriber) message.Subscriber { // what the router puts around each subscriber
		return testkit.Must(message.MessageTransformSubscriberDecorator(func(*message.Message) {})(sub))
	}
	channel := gochannel.NewGoChannel(gochannel.Config{}, watermill.NopLogger{})
	defer channel.Close()
	for name, row := range map[string]struct {
		sub   message.Subscriber
		after time.Duration
		known bool
	}{
		"nil":                        {nil, 0, false},
		"says nothing":               {silent{}, 0, false},
		"says never":                 {saying{}, 0, true},
		"says":                       {saying{after: time.Second}, time.Second, true},
		"says what cannot be":        {saying{after: -1}, 0, false},
		"panics":                     {saying{after: 999}, 0, false},
		"embedded":                   {embedding{embedding{saying{after: time.Second}}}, time.Second, true},
		"with Unwrap":                {around{of: saying{after: time.Second}}, time.Second, true},
		"hidden, of any type":        {&hidden{inside: saying{after: time.Second}}, 0, false},
		"hidden, of a known type":    {&hidden{inside: &kafka.Subscriber{}}, time.Minute, true},
		"in the router's, decorated": {router(&embedding{router(saying{after: time.Second})}), time.Second, true},
		"kafka":                      {&kafka.Subscriber{}, time.Minute, true},
		"gochannel":                  {channel, 0, true},
	} {
		r := RedeliveryOf(decorated.Subscriptions(row.sub))
		testkit.Check(t, r.After == row.after && r.Known == row.known,
			"%s: %s, known %t; want %s, %t", name, r.After, r.Known, row.after, row.known)
	}
}

// How long a message may be held: the rule.
func TestMaxHold(t *testing.T) {
	const unset = -1
	for name, row := range map[string]struct {
		redelivers, adapter, configured, want time.Duration
		in                                    bool // a subscriber's transaction
	}{
		"unknown":                        {redelivers: unset, adapter: unset, want: DefaultMaxHold},
		"known":                          {redelivers: time.Minute, adapter: unset, want: 30 * time.Second},
		"known, configured longer":       {redelivers: time.Minute, adapter: unset, configured: time.Hour, want: 30 * time.Second},
		"never":                          {adapter: unset, want: 24 * time.Hour},
		"adapter":                        {redelivers: unset, adapter: 15 * time.Minute, want: 15 * time.Minute},
		"adapter, configured longer":     {redelivers: unset, adapter: 15 * time.Minute, configured: time.Hour, want: 15 * time.Minute},
		"in a transaction":               {redelivers: time.Hour, adapter: unset, want: DefaultMaxHold, in: true},
		"in a transaction, configured":   {redelivers: time.Hour, adapter: unset, configured: time.Minute, want: time.Minute, in: true},
		"in a transaction with deadline": {redelivers: 30 * time.Second, adapter: unset, want: 15 * time.Second, in: true},
	} {
		ctx := context.Background()
		if row.redelivers != unset {
			ctx = WithRedelivery(ctx, RedeliveryOf(decorated.Subscriptions(saying{after: row.redelivers})))
		}
		if row.adapter != unset {
			ctx = WithMaxHold(ctx, row.adapter)
		}
		if row.in {
			ctx = chain.WithTransaction(ctx, t)
		}
		testkit.Equal(t, name, MaxHold(ctx, row.configured), row.want)
	}
}

// What comes again earlier than expected shortens holds, to a second at least, and never lengthens them.
func TestLearn(t *testing.T) {
	r := RedeliveryOf(decorated.Subscriptions(silent{}))
	changed := r.Changed()
	for _, row := range []struct {
		after, want time.Duration
		shorter     bool
	}{{time.Hour, DefaultMaxHold, false}, {8 * time.Second, 4 * time.Second, true}, {10 * time.Second, 4 * time.Second, false}, {time.Millisecond, time.Second, true}} {
		if got := r.Learn(row.after); got != row.shorter || r.MaxHold(0) != row.want || r.MaxHold(time.Hour) > max(row.want, time.Hour) {
			t.Errorf("%s: %t, held for %s", row.after, got, r.MaxHold(0))
		}
	}
	testkit.Equal(t, "what is configured overrules what was learned", r.MaxHold(time.Hour), time.Second)
	select {
	case <-changed:
	default:
		t.Error("the change was not announced")
	}
	var none *Redelivery
	testkit.Check(t, !none.Learn(time.Second) && none.Changed() == nil && none.MaxHold(0) == DefaultMaxHold,
		"an unknown subscriber learned")
}
