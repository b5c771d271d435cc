package destination

import (
	"reflect"

	"github.com/ThreeDotsLabs/watermill/message"
)

const trimmed = "the publisher trims %q to %d messages, and what it trims is lost: give redisstream.PublisherConfig " +
	"no DefaultMaxlen, or set Maxlens[%q] to 0"

// trims returns how many messages pub, or a publisher inside it, keeps of a topic, or 0 if there is no limit that is
// known. Known is the publisher of Redis Streams, which drops the oldest messages, even those that were never
// delivered.
func trims(pub message.Publisher, topic string) int64 {
	var most int64
	visit(pub, func(v reflect.Value, _ message.Publisher) bool {
		most = maxLength(v, topic)
		return most <= 0
	})
	return max(most, 0)
}

// maxLength reads the configuration of a redisstream.Publisher, without importing it.
func maxLength(v reflect.Value, topic string) int64 {
	if t := v.Type(); t.Name() != "Publisher" ||
		t.PkgPath() != "github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream" {
		return 0
	}
	config := v.FieldByName("config")
	if config.Kind() != reflect.Struct {
		return 0
	}
	if lengths := config.FieldByName("Maxlens"); lengths.IsValid() &&
		lengths.Type() == reflect.TypeFor[map[string]int64]() {
		if own := lengths.MapIndex(reflect.ValueOf(topic)); own.IsValid() {
			return own.Int()
		}
	}
	if length := config.FieldByName("DefaultMaxlen"); length.IsValid() && length.CanInt() {
		return length.Int()
	}
	return 0
}
