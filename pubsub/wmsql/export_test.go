package wmsql

import (
	"time"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
)

// NextQuery is what s asks for the first n messages of topic with.
func NextQuery(s *Subscriber, topic string, n int) wsql.Query {
	return s.source.next(topic, position{}, n)
}

// What tests change of the constants of a subscriber.

func BatchTime(c *SubscriberConfig) *time.Duration      { return &c.batchTime }
func SettleGrace(c *SubscriberConfig) *time.Duration    { return &c.settleGrace }
func NackBackoff(c *SubscriberConfig) *time.Duration    { return &c.nackBackoff }
func MaxNackBackoff(c *SubscriberConfig) *time.Duration { return &c.maxNackBackoff }
func MaxDeliveries(c *SubscriberConfig) *int            { return &c.maxDeliveries }
