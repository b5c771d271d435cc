// Package ordered is the part of a chain that parks messages, as package sequence says. It stands at three places:
//
//   - Outer, inside of the queue: a message whose sequence is parked is appended, before anything is done for it.
//   - Parking, where stages would stand: a message that failed, and can succeed later, is parked.
//   - Inner, around the handler: a handler that acks its message itself is refused. Its lane would not see when the
//     outputs are published.
package ordered
