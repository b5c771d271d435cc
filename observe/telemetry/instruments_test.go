package telemetry_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/observe/telemetry"
)

// read returns the points of all instruments, as name{attributes} and count.
func read(t *testing.T, reader sdkmetric.Reader) map[string]int64 {
	t.Helper()
	var all metricdata.ResourceMetrics
	testkit.NoError(t, reader.Collect(context.Background(), &all))
	points := map[string]int64{}
	name := func(m metricdata.Metrics, set attribute.Set) string {
		var pairs []string
		for _, a := range set.ToSlice() {
			pairs = append(pairs, fmt.Sprintf("%s=%s", a.Key, fmt.Sprint(a.Value.AsInterface())))
		}
		return m.Name + "{" + strings.Join(pairs, ",") + "}"
	}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			switch data := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range data.DataPoints {
					points[name(m, p.Attributes)] = p.Value
				}
			case metricdata.Histogram[float64]:
				testkit.Check(t, m.Unit == "s", "%s has the unit %q", m.Name, m.Unit)
				for _, p := range data.DataPoints {
					points[name(m, p.Attributes)] = int64(p.Count)
				}
			}
		}
	}
	return points
}

func measuring(t *testing.T, config telemetry.Config) (*spillway.Channel, sdkmetric.Reader) {
	t.Helper()
	reader := sdkmetric.NewManualReader()
	provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
	t.Cleanup(func() { _ = provider.Shutdown(context.Background()) })
	config.MeterProvider = provider
	observed, _, _ := follow(t, config)
	channel, _ := watched(observed, 2)
	return testkit.Must(spillway.New(t.Context(), channel)), reader
}

func handle(t *testing.T, channel *spillway.Channel, id string, err error) {
	t.Helper()
	msg := message.NewMessageWithContext(chain.Within(t.Context(), "billing", "orders"), id, nil)
	testkit.Must(channel.Middleware(func(*message.Message) ([]*message.Message, error) { return nil, err })(msg))
}

// Feature O2: the instruments of the conventions, and those that Prometheus has.
func TestInstruments(t *testing.T) {
	channel, reader := measuring(t, telemetry.Config{System: "kafka"})
	handle(t, channel, "1", nil)
	handle(t, channel, "2", nil)
	handle(t, channel, "3", errDown)
	handle(t, channel, "4", classify.Permanent(errDown, classify.Reason("no_such_customer")))
	handle(t, channel, "5", classify.Discard(errDown))
	const ok = "messaging.destination.name=orders,messaging.operation.name=process,messaging.system=kafka"
	const failed = "error.type=*errors.errorString," + ok
	const sent = "{messaging.destination.name=orders.dlq,messaging.operation.name=send,"
	want := map[string]int64{
		"messaging.process.duration{" + ok + "}":                                                               2,
		"messaging.process.duration{" + failed + "}":                                                           4,
		"messaging.client.consumed.messages{" + ok + "}":                                                       5,
		"messaging.client.sent.messages" + sent + "messaging.system=kafka}":                                    2,
		"messaging.client.operation.duration" + sent + "messaging.operation.type=send,messaging.system=kafka}": 2,
		"spillway.attempts{handler=billing,outcome=success,topic=orders}":                                      2,
		"spillway.attempts{handler=billing,outcome=unknown,topic=orders}":                                      2,
		"spillway.attempts{handler=billing,outcome=permanent,topic=orders}":                                    1,
		"spillway.attempts{handler=billing,outcome=discard,topic=orders}":                                      1,
		"spillway.retries{handler=billing,place=process,stage=,topic=orders}":                                  1,
		"spillway.dead_letters{class=permanent,handler=billing,reason=no_such_customer,topic=orders}":          1,
		"spillway.dead_letters{class=unknown,handler=billing,reason=unknown_max_retries,topic=orders}":         1,
		"spillway.discarded{handler=billing,reason=discard,topic=orders}":                                      1,
	}
	got := read(t, reader)
	for _, name := range append(slices.Collect(maps.Keys(got)), slices.Collect(maps.Keys(want))...) {
		testkit.Equal(t, name, got[name], want[name])
	}
}

// Feature O2: an attacker who chooses reasons does not fill the instruments.
func TestInstrumentsAreBounded(t *testing.T) {
	channel, reader := measuring(t, telemetry.Config{})
	for i := range 300 {
		handle(t, channel, fmt.Sprint(i), classify.Permanent(errDown, classify.Reason(fmt.Sprint("r", i, "\n\xff"))))
	}
	sum, series := int64(0), 0
	for name, n := range read(t, reader) {
		if strings.HasPrefix(name, "spillway.dead_letters{") {
			sum, series = sum+n, series+1
		}
	}
	testkit.Check(t, sum == 300 && series == 201, "%d letters in %d series", sum, series)
}
