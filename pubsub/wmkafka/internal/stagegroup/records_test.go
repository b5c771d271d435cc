package stagegroup

import (
	"fmt"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/watermill-spillway/spillway/internal/testkit"
)

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
