package classify

// With adds to an error and leaves its class open, as a rule can.
func With(err error, opts ...Option) error { return mark(err, ClassUnknown, opts) }
