package breaker

import "time"

// ShareEvery has a breaker look at its Store every so often.
func (b *Breaker) ShareEvery(every time.Duration) { b.sharing.every = every }
