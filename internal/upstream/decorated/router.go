package decorated

import (
	"reflect"
	"strings"
	"time"
	"unsafe"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/upstream/foreign"
)

const watermillPath = "github.com/ThreeDotsLabs/watermill"

var (
	routerRow     = foreign.RowOf(watermillPath, "message", "Router", 1)
	middlewareRow = foreign.RowOf(watermillPath, "message", "middleware", 1)
	handlerRow    = foreign.RowOf(watermillPath, "message", "handler", 1)
)

func viewOf(router *message.Router) foreign.View {
	return foreign.View{Row: &routerRow, Value: reflect.ValueOf(router).Elem()}
}

// CloseTimeout returns how long the router waits for its handlers when it closes, or 0 if it is not known. Watermill
// does not export it.
func CloseTimeout(router *message.Router) time.Duration {
	return viewOf(router).Duration("config", "CloseTimeout")
}

// Middlewares counts the middlewares that a handler of the router has for itself, which Watermill does not export. It
// returns false if they cannot be seen.
func Middlewares(router *message.Router, handler string) (n int, known bool) {
	list, ok := viewOf(router).Field(func(v reflect.Value) bool {
		return v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Struct
	}, "middlewares")
	if !ok {
		return 0, false
	}
	var missed string
	for i := range list.Len() {
		one := foreign.View{Row: &middlewareRow, Value: list.Index(i), Missed: &missed}
		if name, all := one.Text("HandlerName"), one.Bool("IsRouterLevel"); name == handler && !all {
			n++
		}
	}
	return n, missed == ""
}

// Subscribers returns the subscribers of the router's handlers, which Watermill does not export: interface values that
// can be read, but not called. It returns false if they cannot be seen. The router must not run, because then handlers
// come and go.
func Subscribers(router *message.Router) (all []reflect.Value, known bool) {
	handlers, ok := viewOf(router).Field(foreign.Of(reflect.Map), "handlers")
	if !ok {
		return nil, false
	}
	for each := handlers.MapRange(); each.Next(); {
		one := foreign.View{Row: &handlerRow, Value: reflect.Indirect(each.Value())}
		has, ok := one.Field(foreign.Of(reflect.Interface), "subscriber")
		if !ok {
			return nil, false
		}
		if !has.IsNil() {
			all = append(all, has)
		}
	}
	return all, true
}

// open returns the field of one of Watermill's subscriber decorators in a way that its methods may be called. The
// router puts such a decorator around each subscriber, and exports no way to what is inside. Another field is returned
// as it is.
func open(of, field reflect.Value) reflect.Value {
	if field.Type() != subscriber || !field.CanAddr() || !strings.HasPrefix(of.Type().PkgPath()+"/", watermillPath+"/") {
		return field
	}
	return reflect.NewAt(subscriber, unsafe.Pointer(field.UnsafeAddr())).Elem()
}
