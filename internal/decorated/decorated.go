// Package decorated looks through decorators at the publishers inside: a decorator has Publish and Close, and hides what else the
// publisher inside can do.
package decorated

import (
	"reflect"
	"strings"

	"github.com/ThreeDotsLabs/watermill/message"
)

// Layer is a publisher, or one that it decorates.
type Layer struct {
	// Publisher is nil where an unexported field holds it: then Type alone is known, and where it points to.
	Publisher message.Publisher
	Type      reflect.Type
	at        uintptr // of a pointer
}

// maxLayers bounds decorators around decorators.
const maxLayers = 32

// Layers returns pub and what it decorates, outermost first: what its method Unwrap returns, or else what fields of an
// interface type hold, if that is a publisher.
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
		if v.Type().Elem().Size() > 0 { // pointers to nothing are all equal
			layer.at = v.Pointer()
		}
		v = v.Elem()
	}
	*layers = append(*layers, layer)
	if inside, ok := layer.Publisher.(interface{ Unwrap() message.Publisher }); ok {
		look(reflect.ValueOf(inside.Unwrap()), layers)
		return
	}
	if v.Kind() != reflect.Struct {
		return
	}
	for i := range v.NumField() {
		if field := v.Field(i); field.Kind() == reflect.Interface && !field.IsNil() {
			look(field.Elem(), layers)
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

// Hides returns the type of a publisher inside of pub that is a T and cannot be reached, or nil.
func Hides[T any](pub message.Publisher) reflect.Type {
	wanted := reflect.TypeFor[T]()
	for _, layer := range Layers(pub) {
		if layer.Publisher == nil && layer.Type.Implements(wanted) {
			return layer.Type
		}
	}
	return nil
}

// ClosedTogether reports whether to close a closes b as well: they are one publisher, as far as that can be seen through the
// decorators of Watermill and of Spillway, which pass Close on. Those of others may not, nor may a value that is no pointer: both are
// how a program keeps a shared publisher open.
func ClosedTogether(a, b message.Publisher) bool {
	for _, of := range passing(a) {
		for _, other := range passing(b) {
			if of.same(other) {
				return true
			}
		}
	}
	return false
}

func passing(pub message.Publisher) []Layer {
	layers := Layers(pub)
	for i, layer := range layers {
		t := layer.Type
		if t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		if path := t.PkgPath() + "/"; !strings.HasPrefix(path, "github.com/ThreeDotsLabs/watermill/") && !strings.HasPrefix(path, "github.com/watermill-spillway/spillway/") {
			return layers[:i+1]
		}
	}
	return layers
}

func (l Layer) same(other Layer) bool {
	return l.Type == other.Type && l.at != 0 && l.at == other.at
}
