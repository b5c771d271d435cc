package wmamqp

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/rabbitmq/amqp091-go"
)

const deliveryLimit = "x-delivery-limit"

// unlimitedFrom is the version of RabbitMQ from which x-delivery-limit -1 means no limit. Earlier ones accept -1, and
// drop a message when it is requeued for the first time, or send it to a dead-letter exchange. Without the argument
// they have no limit.
const unlimitedFrom = 4

func majorVersion(server amqp091.Table) int {
	version, _ := server["version"].(string)
	major, _, _ := strings.Cut(version, ".")
	n, _ := strconv.Atoi(major)
	return n
}

// dropsReturned reports whether a queue with the arguments drops what is requeued for the first time. An unknown
// version is a new one.
func dropsReturned(arguments amqp091.Table, major int) bool {
	limit, is := arguments[deliveryLimit]
	return is && strings.HasPrefix(text(limit), "-") && major > 0 && major < unlimitedFrom
}

// checkSource refuses arguments of a source queue with which the broker drops what is requeued for the first time.
func checkSource(queue string, arguments amqp091.Table, major int) error {
	if !dropsReturned(arguments, major) {
		return nil
	}
	return fmt.Errorf("wmamqp: queue %q with %s %s: RabbitMQ %d drops a message when it is requeued for the first "+
		"time: leave the argument out of SubscriberConfig.AMQP.Queue.Arguments, which means no limit before RabbitMQ %d, "+
		"and delete the queue if it has it", queue, deliveryLimit, text(arguments[deliveryLimit]), major, unlimitedFrom)
}
