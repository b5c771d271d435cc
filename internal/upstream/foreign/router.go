package foreign

import (
	"context"
	"reflect"
	"strings"
	"time"
	"unsafe"

	"github.com/ThreeDotsLabs/watermill/message"
)

var (
	routerRow     = row{watermillPath, []int{1}, "message", "Router"}
	middlewareRow = row{watermillPath, []int{1}, "message", "middleware"}
	handlerRow    = row{watermillPath, []int{1}, "message", "handler"}
)

// CloseTimeout returns how long the router waits for its handlers when it closes, or 0 if it is not known. Watermill
// does not export it.
func CloseTimeout(router *message.Router) time.Duration {
	return view{row: &routerRow, v: reflect.ValueOf(router).Elem()}.duration("config", "CloseTimeout")
}

// Middlewares counts the middlewares that a handler of the router has for itself, which Watermill does not export. It
// returns false if they cannot be seen.
func Middlewares(router *message.Router, handler string) (n int, known bool) {
	list, ok := view{row: &routerRow, v: reflect.ValueOf(router).Elem()}.field(func(v reflect.Value) bool {
		return v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Struct
	}, "middlewares")
	if !ok {
		return 0, false
	}
	var missed string
	for i := range list.Len() {
		one := view{&middlewareRow, list.Index(i), &missed}
		if name, all := one.string("HandlerName"), one.bool("IsRouterLevel"); name == handler && !all {
			n++
		}
	}
	return n, missed == ""
}

// Subscribers returns the subscribers of the router's handlers, which Watermill does not export: interface values that
// can be read, but not called. It returns false if they cannot be seen. The router must not run, because then handlers
// come and go.
func Subscribers(router *message.Router) (all []reflect.Value, known bool) {
	handlers, ok := view{row: &routerRow, v: reflect.ValueOf(router).Elem()}.field(func(v reflect.Value) bool {
		return v.Kind() == reflect.Map
	}, "handlers")
	if !ok {
		return nil, false
	}
	for each := handlers.MapRange(); each.Next(); {
		one := view{row: &handlerRow, v: reflect.Indirect(each.Value())}
		has, ok := one.field(func(v reflect.Value) bool { return v.Kind() == reflect.Interface }, "subscriber")
		if !ok {
			return nil, false
		}
		if !has.IsNil() {
			all = append(all, has)
		}
	}
	return all, true
}

// A router leaves what it knows in the contexts of messages, and Watermill exports only functions that read it. Two
// things must be written too: a message that comes out of a retry stage must look as if it came to its own handler, to
// user code as well; and work on behalf of a message outside of a router needs the names too.
var (
	handlerName    = KeyOf("message.HandlerNameFromCtx", func(c context.Context) { message.HandlerNameFromCtx(c) })
	subscribeTopic = KeyOf("message.SubscribeTopicFromCtx", func(c context.Context) {
		message.SubscribeTopicFromCtx(c)
	})
)

// WritesNames reports whether the names can be written. Without them a message out of a stage would be another handler's,
// and its effects another consumer's.
func WritesNames() bool { return !unread(handlerName) && !unread(subscribeTopic) }

// Within returns ctx with the names that a router leaves in the contexts of a handler's messages.
func Within(ctx context.Context, handler, topic string) context.Context {
	return context.WithValue(WithHandler(ctx, handler), subscribeTopic, topic)
}

// WithHandler returns ctx with the name of a handler.
func WithHandler(ctx context.Context, handler string) context.Context {
	return context.WithValue(ctx, handlerName, handler)
}

// KeyOf returns the key under which get, a function of another module, looks for a value in a context. The key's type
// is private, but each context that get reads sees the key. If get reads none, the key is one that nothing reads.
func KeyOf(name string, get func(context.Context)) any {
	read := &reading{Context: context.Background()}
	get(read)
	if read.key == nil {
		note(name, "the key that it reads in a context")
		return new(nothing)
	}
	return read.key
}

// nothing is the type of keys that nothing reads.
type nothing byte

func unread(key any) bool { _, is := key.(*nothing); return is }

// reading is a context that remembers which key was read.
type reading struct {
	context.Context
	key any
}

func (r *reading) Value(key any) any {
	r.key = key
	return nil
}

var subscriber = reflect.TypeFor[message.Subscriber]()

// Open returns the field of one of Watermill's subscriber decorators in a way that its methods may be called. The
// router puts such a decorator around each subscriber, and exports no way to what is inside. Another field is returned
// as it is.
func Open(of, field reflect.Value) reflect.Value {
	if field.Type() != subscriber || !field.CanAddr() || !strings.HasPrefix(of.Type().PkgPath()+"/", watermillPath+"/") {
		return field
	}
	return reflect.NewAt(subscriber, unsafe.Pointer(field.UnsafeAddr())).Elem()
}

// added are what brokers and adapters add to a message when they deliver it again, and how its value looks. It is not
// the producer's: with it each delivery would be another message.
var added = map[string]func(value string) bool{
	"x-delivery-count":            isNumber,                                           // RabbitMQ's quorum queues
	"x-acquired-count":            isNumber,                                           // RabbitMQ's quorum queues, from 4.3 on
	"_watermill_amqp_redelivered": func(value string) bool { return value == "true" }, // watermill-amqp/v3
}

// Added reports whether a broker or an adapter added metadata of this name to a delivery. Metadata of another form is
// the producer's.
func Added(name, value string) bool {
	switch len(name) { // most names are told by their length
	case len("x-delivery-count"), len("_watermill_amqp_redelivered"):
		is := added[name]
		return is != nil && is(value)
	}
	return false
}

// Strip removes what brokers and adapters added from metadata.
func Strip(metadata message.Metadata) {
	for name, value := range metadata {
		if Added(name, value) {
			delete(metadata, name)
		}
	}
}

func isNumber(value string) bool {
	for _, digit := range []byte(value) {
		if digit < '0' || digit > '9' {
			return false
		}
	}
	return value != ""
}
