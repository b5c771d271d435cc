package campaigns

// Tuned returns the configuration with other bounds than the usual ones. 0 keeps a bound.
func (c WorkerConfig) Tuned(batch, unmarked, attempts int) WorkerConfig {
	c.batch, c.unmarked, c.attempts = batch, unmarked, attempts
	return c
}
