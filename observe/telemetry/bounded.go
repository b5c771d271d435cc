package telemetry

import (
	"strings"
	"sync"
)

// other is the value of all that are too many.
const other = "other"

// bounded keeps the values of each attribute of an instrument few: a value can come from an attacker.
type bounded struct {
	most int

	mu   sync.RWMutex
	seen map[string]map[string]bool // by attribute
}

func newBounded(most int) *bounded {
	return &bounded{most: most, seen: map[string]map[string]bool{}}
}

// value returns value as it may stand on an instrument.
func (b *bounded) value(name, value string) string {
	value = clean(value)
	b.mu.RLock()
	known := b.seen[name][value]
	b.mu.RUnlock()
	if known {
		return value
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	values := b.seen[name]
	switch {
	case values[value]:
	case len(values) >= b.most:
		return other
	case values == nil:
		b.seen[name] = map[string]bool{strings.Clone(value): true}
	default:
		values[strings.Clone(value)] = true
	}
	return value
}
