// Package decorated finds the publishers inside of decorators. A decorator has Publish and Close, and hides the other
// methods of the publisher inside.
package decorated

import (
	"iter"
	"reflect"

	"github.com/ThreeDotsLabs/watermill/message"
)

// Layer is a publisher or a subscriber, or one that it decorates.
type Layer[P any] struct {
	// Inside is nil if an unexported field holds it. Then only its type and its address are known.
	Inside P
	Type   reflect.Type
	// Value is behind the pointer. Its fields may be read, even if Inside is nil.
	Value reflect.Value
	at    uintptr // of a pointer
}

// maxLayers bounds decorators around decorators.
const maxLayers = 32

// Layers returns pub and the publishers that it decorates, outermost first. These are what its method Unwrap returns,
// or without one, the publishers in its fields.
func Layers(pub message.Publisher) (all []Layer[message.Publisher]) {
	look(reflect.ValueOf(pub), &all)
	return all
}

func look[P any](v reflect.Value, all *[]Layer[P]) {
	if !v.IsValid() || len(*all) == maxLayers || !v.Type().Implements(reflect.TypeFor[P]()) {
		return
	}
	layer := Layer[P]{Type: v.Type()}
	if v.CanInterface() {
		layer.Inside, _ = v.Interface().(P)
	}
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return
		}
		if v.Type().Elem().Size() > 0 { // pointers to empty structs may be equal
			layer.at = v.Pointer()
		}
		v = v.Elem()
	}
	layer.Value = v
	*all = append(*all, layer)
	if inside, ok := any(layer.Inside).(interface{ Unwrap() P }); ok {
		look(reflect.ValueOf(inside.Unwrap()), all)
		return
	}
	if v.Kind() != reflect.Struct {
		return
	}
	for i := range v.NumField() {
		switch field := v.Field(i); field.Kind() {
		case reflect.Interface:
			look(open(v, field).Elem(), all)
		case reflect.Pointer, reflect.Struct:
			look(field, all)
		}
	}
}

// As returns the outermost of pub's layers that is a T.
func As[T any](pub message.Publisher) (found T, ok bool) {
	for _, layer := range Layers(pub) {
		if found, ok = layer.Inside.(T); ok {
			return found, true
		}
	}
	return found, false
}

// Hides returns the type of a publisher inside of pub that is a T, but is in an unexported field. It returns nil if
// there is none, and if As finds a T.
func Hides[T any](pub message.Publisher) reflect.Type {
	if _, found := As[T](pub); found {
		return nil
	}
	wanted := reflect.TypeFor[T]()
	for _, layer := range Layers(pub) {
		if layer.Inside == nil && layer.Type.AssignableTo(wanted) {
			return layer.Type
		}
	}
	return nil
}

// ClosedTogether reports whether closing a may close b too, because one publisher is inside of both. A decorator whose
// Close leaves the publisher inside open says so with a method Unwrap that returns nil.
func ClosedTogether(a, b message.Publisher) bool {
	for _, of := range Layers(a) {
		for _, other := range Layers(b) {
			if of.same(other) {
				return true
			}
		}
	}
	return false
}

func (l Layer[P]) same(other Layer[P]) bool {
	return l.Type == other.Type && l.at != 0 && l.at == other.at
}

var subscriber = reflect.TypeFor[message.Subscriber]()

// Subscriptions yields sub and the subscribers that it decorates, outermost first. These are what its method Unwrap
// returns, or without one, the subscribers in its fields. A subscriber is nil if an unexported field holds it, unless
// the field is of one of Watermill's decorators. Its value, behind its pointer, may be read all the same.
func Subscriptions(sub message.Subscriber) iter.Seq2[message.Subscriber, reflect.Value] {
	return func(yield func(message.Subscriber, reflect.Value) bool) {
		var all []Layer[message.Subscriber]
		look(reflect.ValueOf(sub), &all)
		for _, layer := range all {
			if !yield(layer.Inside, layer.Value) {
				return
			}
		}
	}
}
