package stagegroup

import (
	"context"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/hold/placing"
)

// Config configures a Group.
type Config struct {
	// Group is the consumer group whose members share the topics.
	Group string
	// Connect returns a client, and a function that cuts its connections. change is for its configuration.
	Connect func(change func(*sarama.Config)) (sarama.Client, func(), error)
	// InFlight is how many records of a partition are handled at the same time.
	InFlight int
	// MaxPlacing is how many records of a partition are taken from the first unacked one on, if that is more than
	// InFlight. Without it, records that are placed elsewhere count as handled.
	MaxPlacing int
	// MaxPlacingBytes bounds the bytes of these records.
	MaxPlacingBytes int
	// NackBackoff is the wait before a nacked message is handed over again. It doubles, up to MaxNackBackoff.
	NackBackoff, MaxNackBackoff time.Duration
	// SettleGrace is how long handlers may take to ack after a session ended.
	SettleGrace time.Duration
	// Rebalance is how long a session that has ended may wait for handlers.
	Rebalance time.Duration
	// Pinned is how long brokers keep committed offsets.
	Pinned time.Duration
	// Read makes a message of a record.
	Read func(*sarama.ConsumerMessage) *message.Message
	// Context returns the context of a record's message in one delivery, and what ends it.
	Context func(of context.Context, record *sarama.ConsumerMessage, group string,
		delivery placing.Delivery) (context.Context, func())
	Logger watermill.LoggerAdapter
}
