// Package outage holds messages while something that the kit itself needs is away: a database of keys, a broker of outputs.
//
// A Guard watches one such thing. What fails because the thing is away (Away) says nothing of the message: Guard.Do holds
// the message and tries again, and at last gives it back, uncounted. During an outage one caller a second tries, and the
// others wait for the outcome; there is no goroutine, and every wait ends with the message's context. The guard calls an outage
// what lasts a second. It logs that the outage began, and that it ended when failures have stopped for two seconds.
//
// A message that is refused alone, while others pass, is not held for good: after maxRefusal its error is returned as it
// is; until then its tries are ever further apart. A message that alone has the connection cut, again and again for that long,
// ends so too, even if no other passes, unless a failure to connect comes in between. So does a message whose work was interrupted
// maxInterruptions times in a row. The process alone remembers this, and for a bounded number of messages.
package outage
