package prom

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/watermill-spillway/spillway/observe/internal/few"
)

// maxValue is the longest value, in characters.
const maxValue = 100

// bounded keeps the values of each label few, and counts what it folds.
type bounded struct {
	values *few.Values
	folded *prometheus.CounterVec
}

func newBounded(most int) *bounded {
	folded := prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: namespace, Name: "label_values_folded_total",
		Help: "How often a value beyond the bound of its label was counted as the value other. The label place is a pair " +
			"of topic and handler.",
	}, []string{"label"})
	return &bounded{folded: folded, values: few.New(most, maxValue, func(label string) {
		folded.WithLabelValues(label).Inc()
	})}
}

// value returns value as it may stand in a series.
func (b *bounded) value(label, value string) string { return b.values.Of(label, value) }

// clean makes a value that Prometheus accepts, and people can read in a line.
func clean(value string) string { return few.Text(value, maxValue) }
