package destination

import (
	"reflect"

	"github.com/ThreeDotsLabs/watermill/message"
)

// Through returns the topic that a Publisher of Watermill's components/forwarder puts its messages into, whatever topic
// they are for, if pub is or decorates one. Otherwise it returns "".
func Through(pub message.Publisher) (topic string) {
	visit(pub, func(v reflect.Value, _ message.Publisher) bool {
		if t := v.Type(); t.Name() != "Publisher" ||
			t.PkgPath() != "github.com/ThreeDotsLabs/watermill/components/forwarder" {
			return true
		}
		if config := v.FieldByName("config"); config.Kind() == reflect.Struct {
			if field := config.FieldByName("ForwarderTopic"); field.Kind() == reflect.String {
				topic = field.String()
			}
		}
		return topic == ""
	})
	return topic
}
