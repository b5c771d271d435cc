// Package lanes runs many messages at the same time, and never two of one key.
//
//	              ┌─ key a ─▶ a3 a2 ─▶ run(a1)
//	Add ─▶ room ──┼─ key b ─────────▶ run(b1)
//	              └─ no key ────────▶ run(x1)
//
// The messages of a key run one after the other, as they were added. The next one begins when run has returned. A key
// whose message takes long holds up its own messages alone, until there is no room: then Add waits. A message without
// a key has no order, and waits for no other.
//
// A key is kept as a hash of 64 bits, however long it is. Two keys with one hash share a lane, which costs time and no
// order. What is kept is bounded by Config.Items and Config.Bytes, however many keys there are.
//
// Package sequence says what stands on lanes.
package lanes
