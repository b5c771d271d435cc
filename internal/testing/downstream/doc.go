// Package downstream is a service that message handlers call over HTTP, whose failures a test chooses. It runs in the
// test's process, on a real TCP port, so a handler in another process can call it too.
//
// A [Server] is up at first. [Server.Set] changes what it does with each call:
//
//   - [Up] answers.
//   - [Away] closes the port and all connections: a call ends with "connection refused", or with EOF on a connection
//     that was open.
//   - [Busy] answers 503 with Retry-After.
//   - [Failing] answers 500.
//   - [Hanging] answers nothing until the caller hangs up.
//
// [Server.Flap] alternates between two of them, and [Server.Choose] decides by the id of the message. The server counts
// the calls that it received, by id: a call that was refused never came, and the caller counts it.
//
// [Client.Call] is what a handler does: it calls the service with a message's id, and returns the error as an
// application would, without a mark, unless the answer says when to come again.
package downstream
