package testkit

// Must returns what set-up made, as in testkit.Must(poison.NewQueue(store, config)). It panics with the error if there
// is one: a test that cannot be set up says nothing, and the stack names its line.
func Must[T any](made T, err error) T {
	if err != nil {
		panic(err)
	}
	return made
}

// NoError ends the test, or the draw of a property, if there is an error.
func NoError(t interface {
	Helper()
	Fatal(args ...any)
}, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
