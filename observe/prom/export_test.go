package prom

import "time"

// Wait sets how long scrapes wait for a database. Call it before Watch.
func (m *Metrics) Wait(timeout time.Duration) { m.timeout = timeout }
