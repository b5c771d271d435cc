//go:build campaign

package conformance_test

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"

	"github.com/watermill-spillway/spillway/delay"
	"github.com/watermill-spillway/spillway/internal/services"
	"github.com/watermill-spillway/spillway/middleware/stages"
	"github.com/watermill-spillway/spillway/naming"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/pubsub/wmamqp"
	"github.com/watermill-spillway/spillway/pubsub/wmkafka"
)

// What a process holds of many messages that wait at once. It takes minutes and proves no row, so it has a target of its own,
// make conformance-many. The delay must outlast the time in which all fail, for all to wait at once: 360 s on RabbitMQ. The
// gochannel holds whatever it was given in memory.
func TestHundredThousandDelayed(t *testing.T) {
	n, err := strconv.Atoi(os.Getenv("SPILLWAY_STAGES_MANY"))
	if err != nil {
		n = 100_000
	}
	wait, err := time.ParseDuration(os.Getenv("SPILLWAY_STAGES_DELAY"))
	if err != nil {
		wait = 360 * time.Second
	}
	topic := fmt.Sprintf("conformance-many-%d", time.Now().UnixNano())
	t.Run("kafka", func(t *testing.T) {
		b := kafkaBroker(services.Kafka(t))
		m := &many{n: n, wait: wait, topic: topic, pub: b.publisher(t, nil)}
		m.subscriber = func(group string) message.Subscriber { return b.subscriber(t, group, patient) }
		for _, name := range m.topics() {
			b.createTopic(t, name, sarama.TopicDetail{NumPartitions: 1})
		}
		m.run(t)
	})
	for name, arguments := range map[string]amqp091.Table{"amqp-classic": queueType("classic"), "amqp-quorum": queueType("quorum")} {
		t.Run(name, func(t *testing.T) {
			b := amqpBroker{services.AMQP(t), arguments}
			m := &many{n: n, wait: wait, topic: topic + name, pub: b.publisher(t, b.uri, 0)}
			m.subscriber = func(group string) message.Subscriber { return b.subscriber(t, group, b.uri) }
			for _, name := range m.topics() {
				b.createQueue(t, name)
			}
			m.run(t)
		})
	}
	for _, server := range []sqlServer{postgres, mariadb} {
		t.Run(server.name+"-store", func(t *testing.T) {
			s := server.start(t)
			target := s.target(server.name)
			m := &many{n: n, wait: wait, topic: "many", pub: s.publisher(t, s.db, 0), store: s.delays(t)}
			m.subscriber = func(group string) message.Subscriber { return target.Subscriber(t, group) }
			for _, name := range m.topics() {
				s.createTopic(t, name)
			}
			m.run(t)
		})
	}
}

// many are messages that all fail once.
type many struct {
	n          int
	wait       time.Duration
	topic      string
	pub        message.Publisher
	subscriber func(group string) message.Subscriber
	store      *delay.Store
}

func (m *many) topics() []string {
	stage := naming.Source{Topic: m.topic, Handler: "billing"}
	if m.store == nil {
		stage.Delay = m.wait
	}
	return []string{m.topic, m.topic + ".dlq", m.topic + ".invalid", naming.Scheme{}.StageTopic(stage)}
}

func (m *many) run(t *testing.T) {
	m.publish(t)
	ch, err := spillway.New(t.Context(), spillway.Config{Publisher: m.pub, Stages: &stages.Config{
		Publisher: m.pub, Stages: stages.Delays(m.wait), Store: m.store,
		Subscriber: func(_, group string) (message.Subscriber, error) { return m.subscriber(group), nil },
	}})
	if err != nil {
		t.Fatal(err)
	}
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: time.Minute}, watermill.NopLogger{})
	if err != nil {
		t.Fatal(err)
	}
	ch.Attach(router)
	failed, handled := make([]atomic.Bool, m.n), make([]atomic.Bool, m.n)
	var waiting, most, done atomic.Int64
	_, err = ch.Stages().AddConsumerHandler(router, "billing", m.topic, m.subscriber(m.topic), func(msg *message.Message) error {
		id, err := strconv.Atoi(msg.UUID)
		if err != nil {
			return err
		}
		if poison.Inside().StageOf(msg).Number == 0 {
			if !failed[id].Swap(true) {
				most.Store(max(most.Load(), waiting.Add(1)))
			}
			return fmt.Errorf("message %d is not handled yet", id)
		}
		if !handled[id].Swap(true) {
			waiting.Add(-1)
			done.Add(1)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	runtime.GC()
	base := heap()
	ended := make(chan error, 1)
	go func() { ended <- router.Run(context.Background()) }()
	var peak, live uint64
	begun, measured := time.Now(), false
	for done.Load() < int64(m.n) {
		if peak = max(peak, heap()); !measured && most.Load() == int64(m.n) {
			runtime.GC()
			live, measured = heap(), true
			t.Logf("all fail within %s", time.Since(begun).Round(time.Second))
		}
		if time.Since(begun) > 20*time.Minute {
			t.Fatalf("after 20 minutes %d of %d are handled", done.Load(), m.n)
		}
		time.Sleep(20 * time.Millisecond)
	}
	if err := router.Close(); err != nil {
		t.Error(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := m.pub.Close(); err != nil {
		t.Error(err)
	}
	const mib = 1 << 20
	t.Logf("%d messages, %d of which wait at once, through a stage of %s in %s: the heap in use is %.1f MiB before, at the most %.1f MiB more, "+
		"and with all waiting, after a collection, %.1f MiB more", m.n, most.Load(), m.wait, time.Since(begun).Round(time.Second),
		float64(base)/mib, (float64(peak)-float64(base))/mib, (float64(live)-float64(base))/mib)
}

// publish sends all before anything is measured.
func (m *many) publish(t *testing.T) {
	const publishers, batch = 8, 100
	var all sync.WaitGroup
	for p := range publishers {
		all.Go(func() {
			for from := p * batch; from < m.n; from += publishers * batch {
				var messages []*message.Message
				for id := from; id < min(from+batch, m.n); id++ {
					messages = append(messages, message.NewMessage(strconv.Itoa(id), []byte(fmt.Sprintf(`{"id":%d,"of":"a message of usual size"}`, id))))
				}
				if err := m.pub.Publish(m.topic, messages...); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
}

func heap() uint64 {
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapInuse
}
