package hold

import (
	"reflect"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill-amqp/v2/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/watermill-spillway/spillway/internal/testing/facts"
	"github.com/watermill-spillway/spillway/internal/upstream/foreign"
)

// What is known of subscribers is so.
func TestFactSubscribers(t *testing.T) {
	var rows []*foreign.Row
	for i := range subscribers {
		rows = append(rows, &subscribers[i].Row)
	}
	facts := facts.Of(rows...)
	for _, row := range []struct {
		sub  any
		want Subscriber
	}{
		{&gochannel.GoChannel{}, Subscriber{}},
		{&kafka.Subscriber{}, Subscriber{After: time.Minute, Session: true}},
		{&amqp.Subscriber{}, Subscriber{After: 30 * time.Minute, Session: true}},
		{&sql.Subscriber{}, Subscriber{After: 30 * time.Second, Transaction: true}},
	} {
		got := SubscriberOf(reflect.ValueOf(row.sub).Elem())
		facts.Met(t, row.sub, got != nil && *got == row.want)
	}
	facts.Check(t)
}
