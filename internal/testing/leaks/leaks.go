// Package leaks runs the tests of a package, which must leave no goroutine behind.
package leaks

import (
	"testing"

	"go.uber.org/goleak"
)

// Main runs them. The one goroutine of Sarama's metrics lives as long as the process.
func Main(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/rcrowley/go-metrics.(*meterArbiter).tick"))
}
