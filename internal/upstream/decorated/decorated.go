// Package decorated finds the publishers inside of decorators. A decorator has Publish and Close, and hides the other
// methods of the publisher inside.
package decorated

import (
	"iter"
	"reflect"

	"github.com/ThreeDotsLabs/watermill/message"
)

// Layer is a publisher, or a publisher that it decorates.
type Layer struct {
	// Publisher is nil if an unexported field holds it. Then only its type and its address are known.
	Publisher message.Publisher
	Type      reflect.Type
	// Value is the publisher's, behind its pointer. Its fields may be read, even if Publisher is nil.
	Value reflect.Value
	at    uintptr // of a pointer
}

// maxLayers bounds decorators around decorators.
const maxLayers = 32

// Layers returns pub and the publishers that it decorates, outermost first. These are what its method Unwrap returns,
// or without one, the publishers in its fields.
func Layers(pub message.Publisher) []Layer {
	var layers []Layer
	look(reflect.ValueOf(pub), &layers)
	return layers
}

var publisher = reflect.TypeFor[message.Publisher]()

func look(v reflect.Value, layers *[]Layer) {
	if !v.IsValid() || len(*layers) == maxLayers || !v.Type().Implements(publisher) {
		return
	}
	layer := Layer{Type: v.Type()}
	if v.CanInterface() {
		layer.Publisher, _ = v.Interface().(message.Publisher)
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
	*layers = append(*layers, layer)
	if inside, ok := layer.Publisher.(interface{ Unwrap() message.Publisher }); ok {
		look(reflect.ValueOf(inside.Unwrap()), layers)
		return
	}
	if v.Kind() != reflect.Struct {
		return
	}
	for i := range v.NumField() {
		switch field := v.Field(i); field.Kind() {
		case reflect.Interface:
			look(field.Elem(), layers)
		case reflect.Pointer, reflect.Struct:
			look(field, layers)
		}
	}
}

// As returns the outermost of pub's layers that is a T.
func As[T any](pub message.Publisher) (found T, ok bool) {
	for _, layer := range Layers(pub) {
		if found, ok = layer.Publisher.(T); ok {
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
		if layer.Publisher == nil && layer.Type.AssignableTo(wanted) {
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

func (l Layer) same(other Layer) bool {
	return l.Type == other.Type && l.at != 0 && l.at == other.at
}

var subscriber = reflect.TypeFor[message.Subscriber]()

// Subscriptions yields sub and the subscribers that it decorates, outermost first. These are what its method Unwrap
// returns, or without one, the subscribers in its fields. A subscriber is nil if an unexported field holds it, unless
// the field is of one of Watermill's decorators. Its value, behind its pointer, may be read all the same.
func Subscriptions(sub message.Subscriber) iter.Seq2[message.Subscriber, reflect.Value] {
	return func(yield func(message.Subscriber, reflect.Value) bool) {
		n := 0
		subscriptions(reflect.ValueOf(sub), &n, yield)
	}
}

func subscriptions(v reflect.Value, n *int, yield func(message.Subscriber, reflect.Value) bool) bool {
	if !v.IsValid() || *n == maxLayers || !v.Type().Implements(subscriber) {
		return true
	}
	var sub message.Subscriber
	if v.CanInterface() {
		sub, _ = v.Interface().(message.Subscriber)
	}
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return true
		}
		v = v.Elem()
	}
	*n++
	if !yield(sub, v) {
		return false
	}
	if inside, ok := sub.(interface{ Unwrap() message.Subscriber }); ok {
		return subscriptions(reflect.ValueOf(inside.Unwrap()), n, yield)
	}
	if v.Kind() != reflect.Struct {
		return true
	}
	for i := range v.NumField() {
		on := true
		switch field := v.Field(i); {
		case field.Kind() == reflect.Interface && !field.IsNil():
			on = subscriptions(open(v, field).Elem(), n, yield)
		case field.Kind() == reflect.Pointer || field.Kind() == reflect.Struct:
			on = subscriptions(field, n, yield)
		}
		if !on {
			return false
		}
	}
	return true
}
