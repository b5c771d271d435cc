package stagegroup

import (
	"errors"
	"math"
	"slices"
	"time"

	"github.com/IBM/sarama"
)

// errTooLarge is of a record that no response has room for.
var errTooLarge = errors.New("a record is larger than a response of the broker may be")

// take appends the records of a response, and reports whether there were any. The session is locked.
func (p *part) take(block *sarama.FetchResponseBlock, isolation sarama.IsolationLevel,
	now time.Time) (got bool, err error) {
	before := p.next
	aborted := slices.Clone(block.AbortedTransactions)
	slices.SortFunc(aborted, func(a, b *sarama.AbortedTransaction) int {
		return int(min(max(a.FirstOffset-b.FirstOffset, -1), 1))
	})
	dropped := map[int64]bool{} // producers whose transaction was aborted
	partial := block.Partial
	for _, set := range block.RecordsSet {
		switch {
		case set.MsgSet != nil:
			partial = partial || set.MsgSet.PartialTrailingMessage
			p.legacy(set.MsgSet, now)
		case set.RecordBatch != nil:
			batch := set.RecordBatch
			if batch.PartialTrailingRecord {
				partial = true
				continue
			}
			for len(aborted) > 0 && aborted[0].FirstOffset <= batch.LastOffset() {
				dropped[aborted[0].ProducerID] = true
				aborted = aborted[1:]
			}
			switch {
			case batch.Control:
				if isAbort(batch) {
					delete(dropped, batch.ProducerID)
				}
			case isolation == sarama.ReadCommitted && batch.IsTransactional && dropped[batch.ProducerID]:
			default:
				p.batch(batch, now)
			}
			p.next = max(p.next, batch.LastOffset()+1)
		}
	}
	if got = p.next > before; got {
		p.fetchSize = usualFetch
		return true, nil
	}
	if partial {
		if p.fetchSize >= maxFetch {
			return false, errTooLarge
		}
		p.fetchSize = int32(min(2*int64(p.fetchSize), maxFetch, math.MaxInt32))
	}
	return false, nil
}

// isAbort reports whether a batch with a control record ends an aborted transaction: its key is a version and a type,
// of two bytes each.
func isAbort(batch *sarama.RecordBatch) bool {
	return len(batch.Records) > 0 && len(batch.Records[0].Key) >= 4 && batch.Records[0].Key[2] == 0 &&
		batch.Records[0].Key[3] == 0
}

func (p *part) batch(batch *sarama.RecordBatch, now time.Time) {
	for _, r := range batch.Records {
		at := batch.FirstTimestamp.Add(r.TimestampDelta)
		if batch.LogAppendTime {
			at = batch.MaxTimestamp
		}
		p.add(&sarama.ConsumerMessage{
			Topic: p.claim.topic.Name, Partition: p.partition, Offset: batch.FirstOffset + r.OffsetDelta,
			Key: r.Key, Value: r.Value, Headers: r.Headers, Timestamp: at,
		}, now)
	}
}

// legacy takes records of the formats before Kafka 0.11. Offsets in a compressed set are relative.
func (p *part) legacy(set *sarama.MessageSet, now time.Time) {
	for _, block := range set.Messages {
		inner := block.Messages()
		for _, m := range inner {
			offset, at := m.Offset, m.Msg.Timestamp
			if m.Msg.Version >= 1 {
				offset += block.Offset - inner[len(inner)-1].Offset
				if m.Msg.LogAppendTime {
					at = block.Msg.Timestamp
				}
			}
			p.add(&sarama.ConsumerMessage{Topic: p.claim.topic.Name, Partition: p.partition, Offset: offset,
				Key:   m.Msg.Key,
				Value: m.Msg.Value, Timestamp: at, BlockTimestamp: block.Msg.Timestamp}, now)
		}
	}
}

func (p *part) add(record *sarama.ConsumerMessage, now time.Time) {
	if record.Offset < p.next { // a batch begins before the offset that was asked for
		return
	}
	p.next = record.Offset + 1
	f := &flight{of: p, record: record, size: size(record), arrived: now}
	p.records = append(p.records, f)
	p.bytes += f.size
}

// size is what a record holds, roughly.
func size(record *sarama.ConsumerMessage) int {
	n := len(record.Key) + len(record.Value) + 100
	for _, h := range record.Headers {
		n += len(h.Key) + len(h.Value)
	}
	return n
}
