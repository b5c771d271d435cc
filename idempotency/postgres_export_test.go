package idempotency

// ForgetPrepared forgets what connections have prepared.
func ForgetPrepared() {
	preparedOn.mu.Lock()
	defer preparedOn.mu.Unlock()
	clear(preparedOn.all)
}
