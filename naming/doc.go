// Package naming names the topics that Spillway derives from live topics: those of dead letters, of letters that are
// set aside, and of messages that wait for a retry.
//
// A Scheme names all of them. The zero Scheme is the default:
//
//	dead letters of orders                             orders.dlq
//	messages that can never be read                    orders.invalid
//	letters that are not redriven                      orders.dlq.parked
//	letters that were redriven too often               orders.dlq.quarantine
//	messages of handler billing that wait 5 s          orders.billing.retry.5s
//	messages of handler billing that come back         orders.billing.retry
//
// # One scheme for all parts
//
// Set the scheme once, in spillway.Config.Naming. Parts that are used alone have a field Naming too:
// poison.QueueConfig, stages.Config, redrive.HandlerConfig, redrive.DrainTopicConfig, and those of wmkafka. Give the
// same Scheme to each of them. A part with another scheme does not recognise the topics of the others: a handler of
// dead letters would then have dead letters of its own.
//
// # Styles
//
// A Style says how names are joined and what the broker allows. NATS has no dots in the names of streams, so choose
// NATS there:
//
//	Dots      orders.dlq   orders.billing.retry.5s    any printable character
//	Dashes    orders-dlq   orders--billing-retry-5s   any printable character
//	Kafka     orders.dlq   orders.billing.retry.5s    ASCII letters, digits and ". _ -"; no two names that differ
//	                                                  in "." and "_" alone
//	NATS      orders-dlq   orders--billing-retry-5s   ASCII letters, digits and "_ -"
//
// # Patterns
//
// A pattern replaces the name of one kind of topic. "{topic}-dlt" is the dead-letter topic that Spring Kafka uses, and
// "service.dead" is one topic for all letters. Names gives single topics a name that no pattern gives.
//
// # No two sources share a name
//
// A name is changed if the broker does not allow it: a forbidden character is replaced, and a long name is cut. Such a
// name gets "-h" and 12 digits of a hash of topic and handler, in front of its ending:
//
//	handler "bill customers" on Kafka   orders.bill-customers-hfe142ddbbe82.retry.5s
//
// So does a handler whose name contains what joins topic and handler, because orders and eu.billing would otherwise
// have the name of orders.eu and billing. Two sources have one name only if 48 bits of their hashes are equal, or if a
// pattern leaves out what distinguishes them.
//
// # Topics are recognised by name
//
// A message that fails in the consumer of a dead-letter topic is parked. IsDeadLetter recognises such a topic by what
// its name begins and ends with. No live topic may have such a name.
package naming
