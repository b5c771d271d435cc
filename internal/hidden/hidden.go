// Package hidden gives Spillway's own packages the methods of a public type that its users neither call nor see. The
// type embeds a Handle under an unexported name, as Store does in this example, and the methods belong to an unexported
// type:
//
//	type handle = hidden.Handle[*inner]
//
//	type Store struct {
//		handle // NewStore sets it: hidden.By((*inner)(s))
//		...
//	}
//
//	// inner is a Store with the methods that only Spillway's own packages call.
//	type inner Store
//
// Another package calls hidden.Of(store).Claim(ctx). The compiler checks it, and no program outside of this module can.
package hidden

// Handle holds what Of returns. A type has at most one.
type Handle[T any] struct{ methods T }

// By returns a Handle of these methods.
func By[T any](methods T) Handle[T] { return Handle[T]{methods} }

func (h Handle[T]) hidden() T { return h.methods }

// Holder is a value with hidden methods.
type Holder[T any] interface{ hidden() T }

type pointer[S, T any] interface {
	*S
	Holder[T]
}

// In returns the hidden methods of a value of which no more than an interface is known, if it has those.
func In[T any](of any) (methods T, ok bool) {
	h, ok := of.(Holder[T])
	if ok {
		methods = h.hidden()
	}
	return methods, ok
}

// Of returns the hidden methods of a value. They are the zero value of their type if the value is nil.
func Of[S, T any, H pointer[S, T]](of H) (methods T) {
	if of == nil {
		return methods
	}
	return of.hidden()
}
