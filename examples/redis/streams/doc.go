// Package streams has publishers and subscribers for Redis Streams that keep the sentences of docs/pubsub.md, but for
// K11: Watermill's own, with the settings of the conformance suite. Copy it, or import it. docs/redis.md says why each
// setting is as it is.
package streams
