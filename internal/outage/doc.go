// Package outage holds messages while something that the kit itself needs is away: a database of keys, a broker of outputs.
//
// A Guard watches one such thing. What fails because the thing is away (Away) says nothing of the message: Guard.Do holds
// the message and tries again, and at last gives it back, uncounted. During an outage one caller a second tries, and the
// others wait for the outcome; there is no goroutine, and every wait ends with the message's context. The guard logs once
// that an outage began, and once that it ended.
//
// A message that is refused alone, while others pass, is not held for good: after maxRefusal its error is returned as it
// is. So it is with a message whose work was interrupted maxInterruptions times in a row: it may be what ends the
// connection. Both are remembered by the process alone, and for a bounded number of messages.
package outage
