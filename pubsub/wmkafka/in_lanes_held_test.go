package wmkafka

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/hold/placing"
	"github.com/watermill-spillway/spillway/internal/order/parked"
	"github.com/watermill-spillway/spillway/internal/order/sequence"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/databases"
	"github.com/watermill-spillway/spillway/observe"
)

// limited lets one message of a key be parked.
type limited struct{ *Subscriber }

func (l limited) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	sequence.Take(ctx).Limits = sequence.Limits{Messages: 1, All: 100, MessageBytes: 1 << 20, AllBytes: 1 << 20}
	return l.Subscriber.Subscribe(ctx, topic)
}

// decides decides about each key that waits.
func decides(t *testing.T, db *sql.DB, what map[string]parked.Decision) {
	t.Helper()
	for _, p := range testkit.Must(parked.List(t.Context(), db, "shop", 10)) {
		testkit.Must(parked.Decide(context.Background(), db, "shop", p.Seq, parked.Deciding{What: what[*p.Key], By: "ann", Why: "INC-7",
			Record: func(*sql.Tx, string, parked.Parked, int) error { return nil }}))
	}
}

// Feature R13: at the limit of what may be parked the partition waits with an error in the log, and no message overtakes. It
// goes on by itself when there is room.
func TestFullPartition(t *testing.T) {
	t.Parallel()
	c, db, log := newCluster(t), databases.Postgres.New(t), &testkit.Log{}
	channel := testkit.Must(spillway.New(t.Context(), spillway.Config{Service: "shop", DB: db, Logger: log,
		Ordered: &spillway.OrderedConfig{Hold: true}}))
	var repaired atomic.Bool
	h := newHistory()
	c.run(limited{c.subscriber(SubscriberConfig{InFlight: 8})}, channel.Attach, func(msg *message.Message) error {
		if !repaired.Load() {
			return classify.Permanent(errBad)
		}
		h.handle(t, msg.UUID, 0)
		return nil
	})
	const n = 20
	records := keyed(n, 2)
	c.produce(records[0])
	c.eventually("the first message is held", func() bool { return c.committed() == 1 })
	records[1], records[2] = records[2], records[1] // the next one is of the same key
	c.produce(records[1:]...)
	full := func() int {
		return len(log.Lines(watermill.ErrorLogLevel, "As many messages are parked as may be; their partition waits for room"))
	}
	c.eventually("the log says that the partition waits", func() bool { return full() == 1 })
	repaired.Store(true)
	testkit.Check(t, c.committed() == 1 && h.count() == 0,
		"%d are committed, and %d were handled", c.committed(), h.count())
	decides(t, db, map[string]parked.Decision{"key-0": parked.Release})
	c.eventually("all are committed", func() bool { return c.committed() == n })
	c.eventually("all are handled", func() bool { return h.count() == n })
	h.inOrder(t)
}

// Feature R13: an instance that keeps the order of keys and one that does not are never in a group at the same time.
func TestMembersApart(t *testing.T) {
	t.Parallel()
	for _, orderedFirst := range []bool{false, true} {
		t.Run(fmt.Sprint("ordered first ", orderedFirst), func(t *testing.T) {
			t.Parallel()
			membersApart(t, newCluster(t), orderedFirst)
		})
	}
}

func membersApart(t *testing.T, c *cluster, orderedFirst bool) {
	db, log := databases.Postgres.New(t), &testkit.Log{}
	begin := func(ordered bool, handled *atomic.Int64) (stop func()) {
		config := spillway.Config{Service: "shop", DB: db, Logger: watermill.NopLogger{}}
		if ordered {
			config.Ordered = &spillway.OrderedConfig{}
		}
		sub := c.subscriber(SubscriberConfig{InFlight: 8, Shared: observe.Shared{Logger: log}})
		return c.run(sub, c.channel(config).Attach, func(*message.Message) error { handled.Add(1); return nil })
	}
	var first, second atomic.Int64
	stopFirst := begin(orderedFirst, &first)
	const n, keys = 40, 8
	c.produce(keyed(n, keys)...)
	c.eventually("the first handles all", func() bool { return first.Load() == n })
	stopSecond := begin(!orderedFirst, &second)
	c.eventually("the group does not admit it", func() bool { return log.Is(sarama.ErrInconsistentGroupProtocol) })
	testkit.Equal(t, "members", c.members(), 1)
	stopFirst()
	others := keyed(2*n, keys) // of which the receiver knows the first half
	c.produce(others...)
	c.eventually("the second has its turn", func() bool { return second.Load() == n })
	stopSecond()
}

// Promises P1, P4: in a topic that transactions were written to, messages of aborted ones are not delivered, the others
// come in order while failed ones are being placed, and at last all that was written is committed.
func TestPlacingAcrossTransactions(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	_, written := c.transactions(1)
	last := written[len(written)-1]
	came := c.placedInTurn(last)
	testkit.Check(t, slices.Equal(came, written), "%v came, written were %v", came, written)
}

// transactions writes four transactions of three records, of which some are aborted, and returns what is committed.
func (c *cluster) transactions(aborted ...int) (ids []string, offsets []int64) {
	c.Helper()
	producer := c.newProducer(func(config *sarama.Config) {
		config.Producer.Idempotent, config.Producer.Transaction.ID = true, c.topic
	})
	for round := range 4 {
		testkit.NoError(c, producer.BeginTxn())
		end := producer.CommitTxn
		if slices.Contains(aborted, round) {
			end = producer.AbortTxn
		}
		for i := range 3 {
			record := identified(fmt.Sprint(round, "-", i))
			record.Topic = c.topic
			_, offset, err := producer.SendMessage(record)
			testkit.NoError(c, err)
			if !slices.Contains(aborted, round) {
				ids, offsets = append(ids, fmt.Sprint(round, "-", i)), append(offsets, offset)
			}
		}
		testkit.NoError(c, end())
	}
	return ids, offsets
}

// Promises P1, P4: of a compacted topic, what is left comes in order while failed ones are being placed, and at last
// all is committed.
func TestPlacingAcrossCompaction(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.topic += "-compacted"
	c.create(c.topic, 1, map[string]string{"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.ms": "1000"})
	const keys = 4
	var last int64
	for i := range 40 { // each one in a segment of its own, as Kafka counts by the records' times; it takes no small ones from 4.0 on
		last = c.produce(&sarama.ProducerMessage{Timestamp: time.Now().Add(time.Duration(i-40) * 2 * time.Second), Key: sarama.StringEncoder(fmt.Sprint(i % keys)), Value: sarama.StringEncoder(fmt.Sprint(i))})
	}
	// Kafka looks for what to compact every 15 s. If it has not, the topic has no gaps, and all holds as well.
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline) && c.count(last) > last; time.Sleep(time.Second) {
	}
	came := c.placedInTurn(last)
	t.Logf("%d of %d records are left", len(came), last+1)
	testkit.Check(t, slices.IsSorted(came) && len(came) >= keys && came[len(came)-keys] == last-keys+1, "%v came", came)
}

// count is the number of records up to the last one.
func (c *cluster) count(last int64) (n int64) {
	c.Helper()
	consumer := testkit.Must(sarama.NewConsumerFromClient(c.admin.client))
	defer func() { _ = consumer.Close() }()
	claim := testkit.Must(consumer.ConsumePartition(c.topic, 0, sarama.OffsetOldest))
	defer func() { _ = claim.Close() }()
	for record := range claim.Messages() {
		if n++; record.Offset == last {
			break
		}
	}
	return n
}

// placedInTurn fails each second message, and confirms the placements in the reverse order, after the last message. It
// returns the offsets that came, and waits until the last one is committed.
func (c *cluster) placedInTurn(last int64) (came []int64) {
	c.Helper()
	messages := c.subscribe(c.subscriber(SubscriberConfig{Sarama: func(config *sarama.Config) {
		config.Consumer.Offsets.AutoCommit.Enable = false // an ack is committed before the next message comes
	}}))
	var open []*message.Message
	for len(came) == 0 || came[len(came)-1] < last {
		msg := c.next(messages)
		came = append(came, msg.Context().Value(recordContextKey{}).(*recordContext).record.Offset)
		if len(came)%2 == 0 {
			msg.Ack()
			continue
		}
		go placing.Begin(msg.Context(), msg) // waits for those before it with its key
		open = append(open, msg)
	}
	testkit.Check(c, c.committed() <= came[0], "more is committed, and %d is being placed", came[0])
	for _, msg := range slices.Backward(open) {
		msg.Ack()
	}
	c.eventually("all is committed", func() bool { return c.committed() == last+1 })
	return came
}
