package lanes

// Held is the number of keys that are kept.
func (l *Lanes[T]) Held() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(len(l.ends), l.spares-l.config.Running)
}
