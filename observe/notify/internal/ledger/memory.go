package ledger

import (
	"context"
	"math"
	"sync"
	"time"
)

// InMemory returns a Ledger of this process alone.
func InMemory(holder string, rules Rules) *Ledger {
	return &Ledger{&memory{entries: map[Key]*entry{}}, rules, holder}
}

// memory is entries in memory. MaxNew bounds how many there are.
type memory struct {
	mu      sync.Mutex
	entries map[Key]*entry
}

func (m *memory) alone(_ context.Context, work func(transaction) error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return work(m)
}

func (m *memory) get(key Key) (*entry, int64, error) {
	return m.entries[key], time.Now().UnixMicro(), nil
}

func (m *memory) make(key Key) (*entry, int64, error) {
	if m.entries[key] == nil {
		m.entries[key] = &entry{}
	}
	return m.get(key)
}

func (m *memory) add(key Key, e *entry) error { return m.put(key, e) }

func (m *memory) put(key Key, e *entry) error {
	m.entries[key] = e
	return nil
}

func (m *memory) remove(key Key) error {
	delete(m.entries, key)
	return nil
}

func (m *memory) due(_ context.Context, lease time.Duration, limit int) (keys []Key, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now().UnixMicro()
	for key, e := range m.entries {
		free := e.leased <= now || e.leased > now+2*lease.Microseconds()
		if (e.telling != "" && free || e.telling == "" && e.ends <= now || e.opened > now && e.ends < math.MaxInt64) &&
			len(keys) < limit {
			keys = append(keys, key)
		}
	}
	return keys, nil
}

func (m *memory) renew(_ context.Context, holder string, lease time.Duration, keys []Key) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, key := range keys {
		if e := m.entries[key]; e != nil && e.telling != "" && e.holder == holder {
			e.leased = time.Now().Add(lease).UnixMicro()
		}
	}
	return nil
}
