package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/lab/internal/harness"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/pubsub/wmkafka"
)

var errDown, errWrong = errors.New("the bank is unavailable"), errors.New("the amount is negative")

// source is a topic with messages at a fixed rate, and what became of them in the interval.
type source struct {
	topic         string
	keys          int
	once, forGood int // of a hundred messages, those that fail once, and those that fail for good the first time

	mu      sync.Mutex
	failed  map[int]bool
	took    []time.Duration // from publishing to the effect, of messages that did not fail
	again   int             // messages that failed before
	redrive int             // letters that came back
}

// produce publishes at the rate until ctx ends. It catches up if the broker was slow, so that no message is left out.
func (s *source) produce(ctx context.Context, brokers []string, rate int) error {
	config := sarama.NewConfig()
	config.Producer.Return.Successes = true
	producer, err := sarama.NewSyncProducer(brokers, config)
	if err != nil {
		return err
	}
	defer func() { _ = producer.Close() }()
	begun, sent := time.Now(), 0
	for tick := time.NewTicker(10 * time.Millisecond); ; {
		select {
		case <-ctx.Done():
			tick.Stop()
			return nil
		case <-tick.C:
		}
		var batch []*sarama.ProducerMessage
		for due := int(time.Since(begun).Seconds() * float64(rate)); sent < due; sent++ {
			msg := harness.Numbered(sent)
			binary.BigEndian.PutUint64(msg.Payload[4:], uint64(time.Now().UnixNano()))
			record, err := wmkafka.Marshaler{}.Marshal(s.topic, msg)
			if err != nil {
				return err
			}
			record.Key = sarama.StringEncoder(fmt.Sprint("key-", sent%s.keys))
			batch = append(batch, record)
		}
		if err := producer.SendMessages(batch); err != nil {
			return err
		}
	}
}

// handle writes one row, or fails as the number of the message says.
func (s *source) handle(db *harness.Database) message.NoPublishHandlerFunc {
	return func(msg *message.Message) error {
		number := harness.NumberOf(msg.Payload)
		redriven := msg.Metadata.Get(poison.KeyRedriveCount) != ""
		s.mu.Lock()
		before := s.failed[number]
		fails := !before && !redriven && number%100 < s.once+s.forGood
		s.failed[number] = before || fails
		if !s.failed[number] {
			delete(s.failed, number)
		}
		s.mu.Unlock()
		switch {
		case fails && number%100 < s.once:
			return errDown
		case fails:
			return classify.Permanent(errWrong)
		}
		if _, err := idempotency.Tx(msg.Context()).ExecContext(msg.Context(), db.Insert(), msg.UUID); err != nil {
			return err
		}
		sent := time.Unix(0, int64(binary.BigEndian.Uint64(msg.Payload[4:])))
		s.mu.Lock()
		defer s.mu.Unlock()
		switch {
		case redriven:
			s.redrive++
		case before:
			s.again++
		default:
			s.took = append(s.took, time.Since(sent))
		}
		delete(s.failed, number)
		return nil
	}
}

// report adds what became of the messages since the last report.
func (s *source) report(name string, interval time.Duration, figure harness.Figure) {
	s.mu.Lock()
	took, again, redriven := s.took, s.again, s.redrive
	s.took, s.again, s.redrive = nil, 0, 0
	s.mu.Unlock()
	figure[name+"_per_s"] = harness.Whole(float64(len(took)+again+redriven) / interval.Seconds())
	figure[name+"_failed_before"], figure[name+"_redriven"] = again, redriven
	if len(took) > 0 {
		slices.Sort(took)
		figure[name+"_p50_ms"] = harness.Hundredths(took[len(took)/2].Seconds() * 1000)
		figure[name+"_p99_ms"] = harness.Hundredths(took[len(took)*99/100].Seconds() * 1000)
	}
}
