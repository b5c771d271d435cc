package stagegroup

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/hold/placing"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/timing/due"
)

type clientOf struct {
	sarama.Client
	config *sarama.Config
}

func (c clientOf) Config() *sarama.Config { return c.config }

// sessionAt is a session with one partition, which is fetched next from an offset.
func sessionAt(t *testing.T, next int64) (*session, *claim) {
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	topic := &Topic{Name: "stage", Stage: &due.Stage{
		Delay: time.Hour, Until: func(_ *message.Message, arrived time.Time) time.Time { return arrived.Add(time.Hour) },
	}}
	g := New(Config{
		InFlight: 4, Read: func(r *sarama.ConsumerMessage) *message.Message {
			return message.NewMessage(strconv.FormatInt(r.Offset, 10), nil)
		},
		Context: func(ctx context.Context, _ *sarama.ConsumerMessage, _ string, d placing.Delivery) (context.Context, func()) {
			return placing.With(ctx, d), func() {}
		},
		NackBackoff: time.Second, MaxNackBackoff: time.Second,
		MaxPlacingBytes: 16 << 20,
	})
	s := &session{group: g, client: clientOf{config: sarama.NewConfig()}, config: &g.config, ctx: ctx, cancel: cancel, wake: make(chan struct{}, 1), claims: make(map[string]*claim)}
	c := &claim{topic: topic, taking: ctx, ctx: ctx, cancel: func() {}, partitions: []int32{0}}
	s.own(c, next)
	return s, c
}

// own makes a claim the session's, as takeOverOne does.
func (s *session) own(c *claim, next int64) {
	c.parts = []*part{{session: s, claim: c, leader: 1, next: next, committed: next, fetchSize: usualFetch}}
	s.claims[c.topic.Name] = c
}

func responseFrom(offset int64, n int) *sarama.FetchResponse {
	batch := &sarama.RecordBatch{FirstOffset: offset, LastOffsetDelta: int32(n - 1)}
	for i := range n {
		batch.Records = append(batch.Records, &sarama.Record{OffsetDelta: int64(i), Value: make([]byte, 20<<10)})
	}
	block := &sarama.FetchResponseBlock{RecordsSet: []*sarama.Records{{RecordBatch: batch}}}
	return &sarama.FetchResponse{Blocks: map[string]map[int32]*sarama.FetchResponseBlock{"stage": {0: block}}}
}

// Promise P1: a topic was left while a fetch was on its way, and taken again from the offset that is committed, which
// is lower than what had been fetched. The late answer must not stand for the messages between.
func TestAnswerToAnEarlierClaim(t *testing.T) {
	for name, answer := range map[string]*sarama.FetchResponse{
		"records": responseFrom(100, 10),
		"out of range": {Blocks: map[string]map[int32]*sarama.FetchResponseBlock{
			"stage": {0: {Err: sarama.ErrOffsetOutOfRange}},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s, c := sessionAt(t, 100)
			_, asked, _ := s.request(1)
			s.leave(c)
			again := &claim{topic: c.topic, taking: s.ctx, ctx: s.ctx, cancel: func() {}, partitions: []int32{0}}
			s.own(again, 90)
			s.receive(1, answer, asked)
			if p := again.parts[0]; p.next != 90 || p.mark() != 90 {
				t.Fatalf("fetched next from %d, marked %d: messages 90 to 99 are passed over", p.next, p.mark())
			}
			_, asked, _ = s.request(1)
			s.receive(1, responseFrom(90, 5), asked)
			if p := again.parts[0]; p.next != 95 || p.mark() != 90 {
				t.Fatalf("the answer to its own fetch: fetched next from %d, marked %d", p.next, p.mark())
			}
		})
	}
}

// Feature R5: a partition that had no room is fetched again as soon as half of it was handled, and not after the usual
// pause. So a stage with many due messages is drained as fast as they are handled.
func TestFetcherIsCalled(t *testing.T) {
	for n, wantCalls := range map[int]int{13: 1, 3: 0} { // 4 are in the window, and 7 fill the backlog
		s, c := sessionAt(t, 100)
		call := make(chan struct{}, 1)
		s.fetchers = map[int32]chan struct{}{1: call}
		_, asked, _ := s.request(1)
		more, failed := s.receive(1, responseFrom(100, n), asked)
		p := c.parts[0]
		testkit.Require(t, !failed && more == (n == 3) && len(p.records) == n,
			"%d records: more %t, failed %t, %d taken", n, more, failed, len(p.records))
		for len(p.records) > 0 {
			testkit.Check(t, p.bytes < usualFetch/2 || len(call) <= 0, "called while %d bytes wait", p.bytes)
			s.mu.Lock()
			f := p.records[0]
			p.waiting = slices.DeleteFunc(p.waiting, func(one *flight) bool { return one == f })
			s.land(f)
			s.mu.Unlock()
		}
		testkit.Check(t, len(call) == wantCalls, "after %d records %d calls, want %d", n, len(call), wantCalls)
		testkit.Check(t, wantCalls != 1 || s.rest(time.Hour, call), "the pause did not end with the call")
	}
}

// A response can begin before the offset that was asked for, and hold markers, aborted records and records of the old
// format.
func TestTake(t *testing.T) {
	batch := func(first int64, producer int64, n int) *sarama.Records {
		b := &sarama.RecordBatch{FirstOffset: first, LastOffsetDelta: int32(n - 1), ProducerID: producer, IsTransactional: producer > 0}
		for i := range n {
			b.Records = append(b.Records, &sarama.Record{OffsetDelta: int64(i), Value: fmt.Append(nil, first+int64(i))})
		}
		return &sarama.Records{RecordBatch: b}
	}
	marker := func(offset, producer int64, kind byte) *sarama.Records {
		return &sarama.Records{RecordBatch: &sarama.RecordBatch{
			FirstOffset: offset, ProducerID: producer, IsTransactional: true, Control: true, Records: []*sarama.Record{{Key: []byte{0, 0, 0, kind}}},
		}}
	}
	legacy := &sarama.Records{MsgSet: &sarama.MessageSet{Messages: []*sarama.MessageBlock{{Offset: 18, Msg: &sarama.Message{Value: []byte("18")}}}}}
	block := &sarama.FetchResponseBlock{
		AbortedTransactions: []*sarama.AbortedTransaction{{ProducerID: 7, FirstOffset: 8}},
		RecordsSet: []*sarama.Records{
			batch(0, 0, 5), batch(5, 8, 3), batch(8, 7, 2), batch(10, 8, 1), marker(11, 7, 0), marker(12, 8, 1), batch(13, 7, 2), marker(15, 7, 1), batch(16, 0, 2), legacy,
		},
	}
	for isolation, want := range map[sarama.IsolationLevel]string{
		sarama.ReadCommitted:   "[3 4 5 6 7 10 13 14 16 17 18]",
		sarama.ReadUncommitted: "[3 4 5 6 7 8 9 10 13 14 16 17 18]",
	} {
		p := &part{claim: &claim{topic: &Topic{Name: "t"}}, next: 3, fetchSize: usualFetch}
		got, err := p.take(block, isolation, time.Now())
		var offsets []int64
		for _, f := range p.records {
			testkit.Check(t, string(f.record.Value) == fmt.Sprint(f.record.Offset),
				"%q has the offset %d", f.record.Value, f.record.Offset)
			offsets = append(offsets, f.record.Offset)
		}
		if err != nil || !got || fmt.Sprint(offsets) != want || p.next != 19 || p.mark() != 3 {
			t.Errorf("%d: %v, %v, offsets %v, next %d, mark %d", isolation, got, err, offsets, p.next, p.mark())
		}
	}
}

// A record that is larger than what was asked for is asked for with twice the size, until it cannot be had.
func TestTakePartial(t *testing.T) {
	p := &part{claim: &claim{topic: &Topic{Name: "t"}}, fetchSize: usualFetch}
	block := &sarama.FetchResponseBlock{Partial: true}
	for p.fetchSize < maxFetch {
		before := p.fetchSize
		if got, err := p.take(block, sarama.ReadCommitted, time.Now()); got || err != nil || p.fetchSize <= before {
			t.Fatal(got, err, p.fetchSize)
		}
	}
	if _, err := p.take(block, sarama.ReadCommitted, time.Now()); err == nil {
		t.Error("a record that fits in no response is no error")
	}
}
