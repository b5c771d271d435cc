package foreign

import "github.com/ThreeDotsLabs/watermill/message"

// added are what brokers and adapters add to a message when they deliver it again, and how its value looks. It is not
// the producer's: with it each delivery would be another message.
var added = map[string]func(value string) bool{
	"x-delivery-count":            isNumber,                                           // RabbitMQ's quorum queues
	"x-acquired-count":            isNumber,                                           // RabbitMQ's quorum queues, from 4.3 on
	"_watermill_amqp_redelivered": func(value string) bool { return value == "true" }, // watermill-amqp/v3
}

// Added reports whether a broker or an adapter added metadata of this name to a delivery. Metadata of another form is
// the producer's.
func Added(name, value string) bool {
	switch len(name) { // most names are told by their length
	case len("x-delivery-count"), len("_watermill_amqp_redelivered"):
		is := added[name]
		return is != nil && is(value)
	}
	return false
}

// Strip removes what brokers and adapters added from metadata.
func Strip(metadata message.Metadata) {
	for name, value := range metadata {
		if Added(name, value) {
			delete(metadata, name)
		}
	}
}

func isNumber(value string) bool {
	for _, digit := range []byte(value) {
		if digit < '0' || digit > '9' {
			return false
		}
	}
	return value != ""
}
