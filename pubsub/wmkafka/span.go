package wmkafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/IBM/sarama"

	"github.com/watermill-spillway/spillway/internal/timing"
)

const (
	// spanWait is how long a broker may wait for records of a fetch, and the pause after one that failed.
	spanWait = 500 * time.Millisecond
	// spanTries is how often in a row a fetch may fail, or find nothing where records should be.
	spanTries = 10
	// spanFetch is how much is fetched at a time. A batch that is larger comes whole.
	spanFetch = 1 << 20
)

// span is the records of a partition from next to before end. It knows which offsets have no record: those of
// transactions, and those that a compaction left. Sarama's consumer passes over them and does not say so.
type span struct {
	client    sarama.Client
	topic     string
	partition int32
	next, end int64
}

// each calls visit for every record, until visit returns false.
func (s *span) each(ctx context.Context, visit func(*sarama.ConsumerMessage) (more bool)) (more bool, err error) {
	for tries := 0; s.next < s.end; {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		records, next, err := s.fetch()
		switch {
		case err != nil:
			if tries++; tries == spanTries {
				return false, err
			}
			timing.Wait(ctx, spanWait)
			_ = s.client.RefreshMetadata(s.topic) // its error is that of the next try
			continue
		case next <= s.next: // an offset of a record that no fetch returns
			if tries++; tries == spanTries {
				return false, fmt.Errorf("offset %d cannot be read", s.next)
			}
			continue
		}
		tries = 0
		for _, record := range records {
			if record.Offset >= s.end {
				return true, nil
			}
			if record.Offset >= s.next && !visit(record) {
				return false, nil
			}
		}
		s.next = next
	}
	return true, nil
}

// fetch returns records, and the offset behind them.
func (s *span) fetch() (records []*sarama.ConsumerMessage, next int64, err error) {
	broker, err := s.client.Leader(s.topic, s.partition)
	if err != nil {
		return nil, 0, err
	}
	config := s.client.Config()
	request := &sarama.FetchRequest{Version: fetchVersion(config.Version), MaxBytes: largestRequest, MinBytes: 1,
		MaxWaitTime: int32(spanWait.Milliseconds()), Isolation: config.Consumer.IsolationLevel, SessionEpoch: -1}
	request.AddBlock(s.topic, s.partition, s.next, spanFetch, -1)
	response, err := broker.Fetch(request)
	if err != nil {
		_ = broker.Close()
		return nil, 0, err
	}
	block := response.GetBlock(s.topic, s.partition)
	switch {
	case block == nil:
		return nil, 0, sarama.ErrIncompleteResponse
	case errors.Is(block.Err, sarama.ErrOffsetOutOfRange): // what was there has expired meanwhile
		oldest, err := s.client.GetOffset(s.topic, s.partition, sarama.OffsetOldest)
		return nil, oldest, err
	case block.Err != sarama.ErrNoError:
		return nil, 0, block.Err
	}
	if config.Consumer.IsolationLevel == sarama.ReadCommitted { // what follows is of a transaction that goes on
		s.end = min(s.end, block.LastStableOffset)
	}
	records, next = recordsOf(s.topic, s.partition, block, config.Consumer.IsolationLevel)
	return records, next, nil
}

// fetchVersion is the newest that this client knows of what the brokers do. Version 10 allows zstd.
func fetchVersion(v sarama.KafkaVersion) int16 {
	switch {
	case v.IsAtLeast(sarama.V2_1_0_0):
		return 10
	case v.IsAtLeast(sarama.V1_1_0_0):
		return 7
	default:
		return 4
	}
}

// recordsOf returns the records of an answer, without those of aborted transactions and control records, and the offset
// behind all of them, or 0.
func recordsOf(topic string, partition int32, block *sarama.FetchResponseBlock,
	isolation sarama.IsolationLevel) (records []*sarama.ConsumerMessage, next int64) {
	aborted := slices.Clone(block.AbortedTransactions)
	slices.SortFunc(aborted, func(a, b *sarama.AbortedTransaction) int {
		return int(min(max(a.FirstOffset-b.FirstOffset, -1), 1))
	})
	dropped := map[int64]bool{} // producers whose transaction was aborted
	for _, set := range block.RecordsSet {
		batch := set.RecordBatch
		if batch == nil || batch.PartialTrailingRecord {
			continue
		}
		for len(aborted) > 0 && aborted[0].FirstOffset <= batch.LastOffset() {
			dropped[aborted[0].ProducerID] = true
			aborted = aborted[1:]
		}
		next = batch.LastOffset() + 1
		switch {
		case batch.Control:
			if isAbort(batch) {
				delete(dropped, batch.ProducerID)
			}
			continue
		case isolation == sarama.ReadCommitted && batch.IsTransactional && dropped[batch.ProducerID]:
			continue
		}
		for _, r := range batch.Records {
			at := batch.FirstTimestamp.Add(r.TimestampDelta)
			if batch.LogAppendTime {
				at = batch.MaxTimestamp
			}
			records = append(records, &sarama.ConsumerMessage{Topic: topic, Partition: partition,
				Offset: batch.FirstOffset + r.OffsetDelta, Key: r.Key, Value: r.Value, Headers: r.Headers, Timestamp: at})
		}
	}
	return records, next
}

// isAbort reports whether a batch with a control record ends an aborted transaction: its key is a version and a type,
// of two bytes each.
func isAbort(batch *sarama.RecordBatch) bool {
	return len(batch.Records) > 0 && len(batch.Records[0].Key) >= 4 && batch.Records[0].Key[2] == 0 &&
		batch.Records[0].Key[3] == 0
}
