package stages_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/cqrs"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/middleware/stages"
	"github.com/watermill-spillway/spillway/naming"
)

// listing is a publisher that can list what waits, and makes topics after the pattern of their source.
type listing struct {
	*broker
	waiting      map[string]int
	made         []string
	err, refuses error
}

func (h *listing) InitializeTopicsFor(source string, topics ...string) error {
	h.made = append(append(h.made, source), topics...)
	return h.refuses
}

func (h *listing) ListWaiting(_ context.Context, prefix string) (map[string]int, error) {
	if h.err != nil && prefix == "parcels." {
		panic(h.err)
	}
	found := map[string]int{}
	for topic, n := range h.waiting {
		if strings.HasPrefix(topic, prefix) {
			found[topic] = n
		}
	}
	return found, nil
}

// Features R5, D3: at the start an error in the log names each stage topic where messages wait without a consumer, and
// none that a handler here has, also retired. The search follows the names of the scheme. Where stage topics are not
// named as their groups are, a Lister would take them all for abandoned: it is not asked.
func TestStagesTellOfTheAbandoned(t *testing.T) {
	const notified = "no handler of this process"
	for name, row := range map[string]struct {
		naming  naming.Scheme
		waiting map[string]int
		says    map[string]int // texts of the log, and in how many lines
		lines   int
	}{
		"defaults": {naming.Scheme{}, map[string]int{
			"orders.billing.retry.1s": 5, "orders.billing.retry.7s": 6, "orders.billing.retry.9m": 7, "orders.gone.retry.1s": 8, "orders.gone.retry.2s": 0,
			"orders.dlq": 9, "parcels.x.retry.1s": 1,
		}, map[string]int{notified: 2, "orders.billing.retry.9m": 1, "messages:8": 1, "The search for messages": 1}, 3},
		"another style": {naming.Scheme{Style: naming.NATS}, map[string]int{
			"orders--billing-retry-1s": 5, "orders--billing-retry-9m": 7, "orders--gone-retry": 8, "orders-dlq": 9, "orders--billing-retries": 1,
		}, map[string]int{notified: 2, "orders--billing-retry-9m": 1, "messages:8": 1}, 2},
		"named otherwise than groups": {naming.Scheme{Stage: "{topic}.{handler}.again.{delay}"},
			map[string]int{"orders.billing.again.9m": 7}, nil, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			log, h := &lines{}, &listing{broker: newBroker(), err: errors.New("no rights"), waiting: row.waiting}
			s := newStaging(t, stages.Config{
				Publisher: h, Stages: []stages.Stage{{Delay: time.Second}, {Delay: 7 * time.Second, Retired: true}}, Naming: row.naming,
			}, log)
			s.broker = h.broker
			s.handle("billing", "orders", failTimes(newNote(), 0))
			s.handle("packing", "parcels", failTimes(newNote(), 0))
			s.run()
			s.stop()
			for text, n := range row.says {
				got := log.count(text)
				testkit.Check(t, got == n, "%s: %q is in %d lines, want %d", name, text, got, n)
			}
			all := log.all()
			testkit.Check(t, len(all) == row.lines, "%s:\n%s", name, strings.Join(all, "\n"))
		})
	}
	testkit.NoError(t, (*stages.Stages)(nil).Plugin(nil))
}

// Feature D5: stage topics are made before they are subscribed to, and one that cannot be made stops the start.
func TestStagesMakeTheirTopics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &listing{broker: newBroker()}
		s := newStaging(t, stages.Config{Publisher: m, Stages: stages.Delays(time.Second)}, nil)
		s.broker = m.broker
		s.handle("billing", "orders", failTimes(newNote(), 0))
		s.run()
		s.stop()
		testkit.Check(t, strings.Join(m.made, " ") == "orders orders.billing.retry.1s", "made %q", m.made)
		m.refuses = errors.New("no rights")
		s.again()
		s.handle("billing", "orders", failTimes(newNote(), 0))
		err := s.router.Run(t.Context())
		testkit.Check(t, errors.Is(err, m.refuses), "started: %v", err)
		testkit.Says(t, err, `stage topic "orders.billing.retry.1s" of handler "billing" cannot be used`)
	})
}

type orderPlaced struct{ Order string }

// Feature R9: the handlers of a group of cqrs are handled again later, with the event decoded as before. Extend knows a
// handler by its name, so those of other processors are handled as TestStagesExtend shows.
func TestStagesExtendCQRS(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStaging(t, stages.Config{Stages: stages.Delays(time.Second, time.Minute)}, nil)
		var handled []string
		processor := testkit.Must(cqrs.NewEventGroupProcessorWithConfig(s.router, cqrs.EventGroupProcessorConfig{
			GenerateSubscribeTopic: func(cqrs.EventGroupProcessorGenerateSubscribeTopicParams) (string, error) { return "orders", nil },
			SubscriberConstructor: func(cqrs.EventGroupProcessorSubscriberConstructorParams) (message.Subscriber, error) {
				return s.broker.consumer(), nil
			},
			Marshaler: cqrs.JSONMarshaler{},
		}))
		testkit.NoError(t, processor.AddHandlersGroup("billing", cqrs.NewGroupEventHandler(func(ctx context.Context, event *orderPlaced) error {
			handled = append(handled, message.HandlerNameFromCtx(cqrs.OriginalMessageFromCtx(ctx).Context())+" "+event.Order)
			if len(handled) < 3 {
				return errBoom
			}
			return nil
		})))
		testkit.Must(s.stages.Extend(s.router, "billing", "orders"))
		s.run()
		bus := testkit.Must(cqrs.NewEventBusWithConfig(s.broker, cqrs.EventBusConfig{
			GeneratePublishTopic: func(cqrs.GenerateEventPublishTopicParams) (string, error) { return "orders", nil },
			Marshaler:            cqrs.JSONMarshaler{},
		}))
		testkit.NoError(t, bus.Publish(t.Context(), orderPlaced{"42"}))
		time.Sleep(time.Hour)
		s.stop()
		testkit.Check(t, len(handled) == 3 && handled[2] == "billing 42" && len(s.letters.all()) == 0,
			"handled %q, letters %v", handled, s.letters.all())
	})
}

// Stages that no handler has are an error in the log: the router's own AddConsumerHandler knows nothing of them.
func TestStagesThatNoHandlerHas(t *testing.T) {
	log := &lines{}
	s := newStaging(t, stages.Config{Publisher: newBroker(), Stages: stages.Delays(time.Second)}, log)
	testkit.NoError(t, s.stages.Plugin(s.router))
	if log.count("no handler has them") != 1 {
		t.Errorf("%q", log.all())
	}
}
