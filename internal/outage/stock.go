package outage

import (
	"reflect"
	"strings"
	"time"
)

// stocked is a subscriber of one of Watermill's own modules, by package path without version and by type. Its settings
// are read from fields by name; if the module is built otherwise, it has the default.
type stocked struct {
	path, name  string
	after       time.Duration // by default; 0 is never
	field       string        // of the struct or of its config, that has another time
	most        bool          // the field can only shorten the time: the broker does not get it
	session     bool          // the end of a session redelivers, and the time bounds how long a message may delay it
	transaction bool
}

var known = []stocked{
	{path: "github.com/ThreeDotsLabs/watermill/pubsub/gochannel", name: "GoChannel"},
	// The subscriber ends a message's context after AckWaitTimeout. The server has its own AckWait, 30 s unless the
	// consumer says otherwise.
	{path: "github.com/ThreeDotsLabs/watermill-nats/pkg/nats", name: "Subscriber", after: 30 * time.Second,
		field: "AckWaitTimeout", most: true},
	{path: "github.com/ThreeDotsLabs/watermill-nats/pkg/jetstream", name: "Subscriber", after: 30 * time.Second,
		field: "ackWait", most: true},
	// Pending entries are claimed after MaxIdleTime, even by the consumer that has them.
	{path: "github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream", name: "Subscriber", after: time.Minute,
		field: "MaxIdleTime"},
	// A rebalance waits for messages without an ack for a minute, and then delivers them to another member.
	{path: "github.com/ThreeDotsLabs/watermill-kafka/pkg/kafka", name: "Subscriber", after: time.Minute, session: true},
	// The consumer_timeout of RabbitMQ.
	{path: "github.com/ThreeDotsLabs/watermill-amqp/pkg/amqp", name: "Subscriber", after: 30 * time.Minute, session: true},
	// A message holds a transaction open.
	{path: "github.com/ThreeDotsLabs/watermill-sql/pkg/sql", name: "Subscriber", after: 30 * time.Second,
		field: "AckDeadline", most: true, transaction: true},
}

// stock returns the row of a subscriber, or nil, and its redelivery time.
func stock(v reflect.Value) (*stocked, time.Duration) {
	t := v.Type()
	for i := range known {
		k := &known[i]
		if t.Name() != k.name || unversioned(t.PkgPath()) != k.path {
			continue
		}
		after := k.after
		if set := setting(v, k.field); set > 0 && (!k.most || set < after) {
			after = set
		}
		return k, after
	}
	return nil, 0
}

// unversioned removes the element of a major version from an import path.
func unversioned(path string) string {
	parts := strings.Split(path, "/")
	if len(parts) > 3 && len(parts[3]) > 1 && parts[3][0] == 'v' && strings.Trim(parts[3][1:], "0123456789") == "" {
		parts = append(parts[:3], parts[4:]...)
	}
	return strings.Join(parts, "/")
}

// setting returns the duration in the field of a struct or of its field config, or 0.
func setting(v reflect.Value, field string) time.Duration {
	if v.Kind() != reflect.Struct || field == "" {
		return 0
	}
	f := v.FieldByName(field)
	if config := v.FieldByName("config"); !f.IsValid() && config.Kind() == reflect.Struct {
		f = config.FieldByName(field)
	}
	if f.Kind() == reflect.Pointer {
		f = f.Elem()
	}
	if !f.IsValid() || f.Type() != reflect.TypeFor[time.Duration]() {
		return 0
	}
	return time.Duration(f.Int())
}
