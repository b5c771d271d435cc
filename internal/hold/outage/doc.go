// Package outage holds messages while something that Spillway itself needs is away: a database of keys, a broker of
// outputs.
//
// A Dependency is one such thing. If a request fails because the thing is away (see Away), the error is not about the
// message. Dependency.Do then holds the message and tries again, and at last gives it back, uncounted. During an
// outage, one caller a second tries, and the others wait for the outcome. There is no goroutine, and every wait ends
// with the message's context.
//
// Failures count as an outage after a second. The dependency logs when an outage began, and when failures have stopped
// for two seconds.
//
// Some errors look like an outage and are about the message. Dependency.Do returns such an error after bounded time:
//
//   - A message that is refused while others pass: after maxRefusal, with ever longer waits between its attempts.
//   - A message that alone has its connection cut again and again: after maxRefusal, even if no other message passes. A
//     failure to connect in between shows an outage.
//   - A message whose work was interrupted maxInterruptions times in a row.
//   - If a broker that is reached nacks all messages (see Nacked): one message in each maxRefusal.
//
// The dependency remembers messages in this process alone, at most recent.Most of them.
package outage
