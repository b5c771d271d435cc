package chain

import (
	"fmt"
	"reflect"

	"github.com/ThreeDotsLabs/watermill/message"
)

// registered has the step of each type that Register was called with. Only init functions write to it.
var registered = make(map[reflect.Type]func(part any) Step)

// Register makes values of type T parts of chains. Call it in the init function of T's package. So the front door can
// compose parts of many packages, and no part exports a method with a type of this package.
func Register[T any](step func(part T, next Handler) Handler) {
	registered[reflect.TypeFor[T]()] = func(part any) Step {
		return func(next Handler) Handler { return step(part.(T), next) }
	}
}

// EnterParts is Enter with the steps of parts, the first one outermost.
func EnterParts(parts ...any) message.HandlerMiddleware {
	steps := make([]Step, len(parts))
	for i, part := range parts {
		steps[i] = StepOf(part)
	}
	return Enter(steps...)
}

// StepOf returns the step of a part whose type is registered. It panics for any other.
func StepOf(part any) Step {
	step := registered[reflect.TypeOf(part)]
	if step == nil {
		panic(fmt.Sprintf("chain: %T is not a part of chains: call chain.Register in the init function of its package", part))
	}
	return step(part)
}
