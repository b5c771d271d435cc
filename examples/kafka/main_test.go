package main

import (
	"encoding/json"
	"os"
	"slices"
	"testing"

	"go.uber.org/goleak"

	"github.com/watermill-spillway/spillway/examples/internal/crash"
	"github.com/watermill-spillway/spillway/internal/services"
)

// The example starts itself as its consumer, and here that is the test.
func TestMain(m *testing.M) {
	if slices.Contains(os.Args, "-consume") {
		main()
		return
	}
	// Sarama's metrics have one goroutine for the whole process.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/rcrowley/go-metrics.(*meterArbiter).tick"))
}

// Promises P1 and P7, end to end on Kafka: whenever the consumer is killed, nothing is lost and nothing happens twice.
func TestDemo(t *testing.T) {
	services.Kafka(t)
	for _, c := range []struct {
		seed       uint64
		killAt     int
		partitions int32
	}{{1, 1, 3}, {2, 35, 1}} {
		plan := crash.Plan{KillAt: c.killAt}
		plan.Seed = c.seed
		result, err := run(plan, c.partitions)
		if err != nil {
			t.Fatal(err)
		}
		counts := map[string]int{}
		if err := json.Unmarshal([]byte(result.JSON()), &counts); err != nil {
			t.Fatal(err)
		}
		for name, n := range counts {
			if bad := name == "lost" || name == "duplicate_effects"; bad != (n == 0) {
				t.Errorf("%+v: %s is %d", c, name, n)
			}
		}
		if len(counts) != 12 || result.Applied+result.AppliedAfterRedrive+result.Remaining != 60 {
			t.Errorf("%+v: %s", c, result.JSON())
		}
	}
}
