package sequence

import "time"

// LookEvery makes owners look more often, until the returned function is called.
func LookEvery(d time.Duration) (restore func()) {
	before := lookEvery
	lookEvery = d
	return func() { lookEvery = before }
}
