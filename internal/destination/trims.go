package destination

import (
	"reflect"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/decorated"
)

const trimmed = "the publisher trims %q to %d messages, and what it trims is lost: give redisstream.PublisherConfig no DefaultMaxlen, or set Maxlens[%q] to 0"

// trims returns how many messages pub, or a publisher inside it, keeps of a topic, or 0 if there is no limit that is known. Known is the
// publisher of Redis Streams, which drops the oldest messages, even those that were never delivered.
func trims(pub message.Publisher, topic string) int64 {
	for _, layer := range decorated.Layers(pub) {
		if limit := maxLength(layer.Value, topic); limit > 0 {
			return limit
		}
		if layer.Value.Kind() != reflect.Struct {
			continue
		}
		for i := range layer.Value.NumField() { // one that is embedded by its pointer is no layer
			if field := layer.Value.Field(i); field.Kind() == reflect.Pointer && !field.IsNil() {
				if limit := maxLength(field.Elem(), topic); limit > 0 {
					return limit
				}
			}
		}
	}
	return 0
}

// maxLength reads the configuration of a redisstream.Publisher, without importing it.
func maxLength(v reflect.Value, topic string) int64 {
	if t := v.Type(); t.Name() != "Publisher" || t.PkgPath() != "github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream" {
		return 0
	}
	config := v.FieldByName("config")
	if config.Kind() != reflect.Struct {
		return 0
	}
	if lengths := config.FieldByName("Maxlens"); lengths.IsValid() && lengths.Type() == reflect.TypeFor[map[string]int64]() {
		if own := lengths.MapIndex(reflect.ValueOf(topic)); own.IsValid() {
			return own.Int()
		}
	}
	if length := config.FieldByName("DefaultMaxlen"); length.IsValid() && length.CanInt() {
		return length.Int()
	}
	return 0
}
