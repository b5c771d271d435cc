package prom

import (
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
)

// other is the value of all that are too many.
const other = "other"

// maxValue is the longest value, in characters.
const maxValue = 100

// bounded keeps the values of each label few: a value can come from an attacker.
type bounded struct {
	most   int
	folded *prometheus.CounterVec

	mu   sync.RWMutex
	seen map[string]map[string]bool // by label
}

func newBounded(most int) *bounded {
	return &bounded{most: most, seen: map[string]map[string]bool{}, folded: prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: namespace, Name: "label_values_folded_total",
		Help: "How often a value beyond the bound of its label was counted as the value other. The label place is a pair of topic and handler.",
	}, []string{"label"})}
}

// value returns value as it may stand in a series.
func (b *bounded) value(label, value string) string {
	value = clean(value)
	b.mu.RLock()
	known := b.seen[label][value]
	b.mu.RUnlock()
	if known {
		return value
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	values := b.seen[label]
	switch {
	case values[value]:
	case len(values) >= b.most:
		b.folded.WithLabelValues(label).Inc()
		return other
	case values == nil:
		b.seen[label] = map[string]bool{value: true}
	default:
		values[strings.Clone(value)] = true
	}
	return value
}

// clean makes a value that Prometheus accepts, and people can read in a line.
func clean(value string) string {
	short := true
	for i := 0; i < len(value) && short; i++ {
		short = i < maxValue && value[i] >= ' ' && value[i] < utf8.RuneSelf && value[i] != 0x7f
	}
	if short {
		return value
	}
	var b strings.Builder
	n := 0
	for _, r := range value {
		if n++; n > maxValue {
			break
		}
		if r < ' ' || r == 0x7f {
			r = utf8.RuneError
		}
		b.WriteRune(r)
	}
	return b.String()
}
