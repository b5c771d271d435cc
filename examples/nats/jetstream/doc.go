// Package jetstream is what a service on NATS JetStream adds to watermill-nats. Copy it: it is part of an example, and
// Spillway promises nothing about its names. The conformance suite tests NATS with this package, so its settings are
// those of the matrix.
//
//	config := jetstream.Config{URL: "nats://127.0.0.1:4222", Group: "billing"}
//	sub, err := jetstream.NewSubscriber(config, nil)
//	dead, err := jetstream.NewPublisher(config, nil) // a handler's outputs need another one
//	dlc, err := spillway.New(ctx, spillway.Config{Service: "shop", DB: db, Publisher: dead})
//
// What watermill-nats leaves to its user, and what becomes of a service that does not see to it:
//
//   - nats.ManualAck. Without it the client acks each message when watermill-nats lets go of it, also a message that is
//     given back or that a closing subscriber drops. Such messages are lost.
//   - A durable consumer that exists before the subscription. A consumer that the client creates itself is deleted when
//     the subscription ends: its position is lost, and the other instances of the service get nothing any more.
//   - A fixed subject to deliver to. With it, a consumer that was deleted and made again delivers to the subscriptions
//     there are. Subscriber looks every few seconds.
//   - MaxAckPending. The server sends so many messages at once to a group. They wait in the client, and AckWait counts
//     there: with the server's default of 1,000 slow handlers get messages twice.
//   - Reconnecting for good. The client gives up after two minutes by default, and says so in no error.
//   - Streams. Watermill's topic is a subject here, with a stream of its own that keeps all (Create). A stream with a
//     limit that removes messages, or one that keeps only what a consumer waits for, confirms letters and drops them:
//     it is refused.
//   - A marshaler. Watermill-nats' default puts metadata into headers of NATS, where a line break becomes a space, and
//     where keys such as Nats-TTL are commands to the server. Gob keeps everything.
//   - Consumers with MaxDeliver, of other programs: Undelivered makes dead letters of what they gave up.
//   - Unreadable messages. Watermill-nats leaves them unacked, and they come again for ever: here they are
//     dead-lettered.
package jetstream
