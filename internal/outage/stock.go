package outage

import (
	"reflect"
	"strings"
	"time"
)

// known are the subscribers of Watermill's own modules, by package path without version and by type. Their settings are read from fields
// by name; a module that is built otherwise has the default.
var known = []struct {
	path, name string
	after      time.Duration // by default; 0 is never
	field      string        // of the struct or of its config, that has another time
	most       bool          // the field can only shorten the time: the broker does not get it
}{
	{"github.com/ThreeDotsLabs/watermill/pubsub/gochannel", "GoChannel", 0, "", false},
	// The subscriber ends a message's context after AckWaitTimeout. The server has its own AckWait, 30 s unless the consumer says otherwise.
	{"github.com/ThreeDotsLabs/watermill-nats/pkg/nats", "Subscriber", 30 * time.Second, "AckWaitTimeout", true},
	{"github.com/ThreeDotsLabs/watermill-nats/pkg/jetstream", "Subscriber", 30 * time.Second, "ackWait", true},
	// Pending entries are claimed after MaxIdleTime, by the consumer that has them too.
	{"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream", "Subscriber", time.Minute, "MaxIdleTime", false},
	// A rebalance waits for messages without an ack for a minute, and then delivers them to another member.
	{"github.com/ThreeDotsLabs/watermill-kafka/pkg/kafka", "Subscriber", time.Minute, "", false},
	// The consumer_timeout of RabbitMQ.
	{"github.com/ThreeDotsLabs/watermill-amqp/pkg/amqp", "Subscriber", 30 * time.Minute, "", false},
	// A message holds a transaction open.
	{"github.com/ThreeDotsLabs/watermill-sql/pkg/sql", "Subscriber", 30 * time.Second, "AckDeadline", true},
}

// stock returns the redelivery time of a subscriber of Watermill's own modules.
func stock(v reflect.Value) (after time.Duration, ok bool) {
	t := v.Type()
	for _, k := range known {
		if t.Name() != k.name || unversioned(t.PkgPath()) != k.path {
			continue
		}
		if set := setting(v, k.field); set > 0 {
			if after = set; k.most {
				after = min(after, k.after)
			}
			return after, true
		}
		return k.after, true
	}
	return 0, false
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
