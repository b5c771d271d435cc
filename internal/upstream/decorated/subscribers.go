package decorated

import (
	"reflect"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/upstream/foreign"
)

// Subscription is a subscriber, or a subscriber that it decorates.
type Subscription struct {
	// Subscriber is nil if an unexported field holds it, unless the field is of one of Watermill's decorators.
	Subscriber message.Subscriber
	// Value is the subscriber's, behind its pointer. Its fields may be read, even if Subscriber is nil.
	Value reflect.Value
}

var subscriber = reflect.TypeFor[message.Subscriber]()

// Subscriptions returns sub and the subscribers that it decorates, outermost first. These are what its method Unwrap
// returns, or without one, the subscribers in its fields.
func Subscriptions(sub message.Subscriber) []Subscription {
	var all []Subscription
	subscriptions(reflect.ValueOf(sub), &all)
	return all
}

func subscriptions(v reflect.Value, all *[]Subscription) {
	if !v.IsValid() || len(*all) == maxLayers || !v.Type().Implements(subscriber) {
		return
	}
	one := Subscription{}
	if v.CanInterface() {
		one.Subscriber, _ = v.Interface().(message.Subscriber)
	}
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return
		}
		v = v.Elem()
	}
	one.Value = v
	*all = append(*all, one)
	if inside, ok := one.Subscriber.(interface{ Unwrap() message.Subscriber }); ok {
		subscriptions(reflect.ValueOf(inside.Unwrap()), all)
		return
	}
	if v.Kind() != reflect.Struct {
		return
	}
	for i := range v.NumField() {
		switch field := v.Field(i); {
		case field.Kind() == reflect.Interface && !field.IsNil():
			subscriptions(foreign.Open(v, field).Elem(), all)
		case field.Kind() == reflect.Pointer || field.Kind() == reflect.Struct:
			subscriptions(field, all)
		}
	}
}
