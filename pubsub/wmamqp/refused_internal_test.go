package wmamqp

import (
	"fmt"
	"testing"

	"github.com/rabbitmq/amqp091-go"

	"github.com/watermill-spillway/spillway/internal/outage"
	"github.com/watermill-spillway/spillway/internal/testkit"
)

// Decision 21: in the words of a cluster of RabbitMQ 3.10, a classic queue whose node is down is told from a queue that
// is not there.
func TestNodeOfQueueIsDown(t *testing.T) {
	for reason, want := range map[string]bool{
		"NOT_FOUND - home node 'bn3@localhost' of durable queue 'cq-classic' in vhost '/' is down or inaccessible": true,
		"NOT_FOUND - no queue 'cq-classic' in vhost '/'":                                                           false,
	} {
		err := fmt.Errorf("wmamqp: backlog: %w", &amqp091.Error{Code: amqp091.NotFound, Reason: reason, Server: true})
		testkit.Check(t, isNodeDown(err) == want, "%s: %t", reason, !want)
	}
	testkit.Check(t, !isNodeDown(&amqp091.Error{Code: amqp091.AccessRefused, Reason: "down or inaccessible"}) &&
		!isNodeDown(nil), "another refusal is taken for a node that is down")
}

// Decision 21: what wmamqp's publisher says of a nack and of silence holds messages for a while, and what it says of a
// missing queue does not.
func TestWordsOfTheBroker(t *testing.T) {
	for err, want := range map[error]bool{
		nacked("nack"):                true,
		noConfirm(address{}, 0):       true,
		&returnedError{to: address{}}: false,
	} {
		testkit.Check(t, outage.Away(err) == want && outage.Nacked(err) == want,
			"%v: away %t, nacked %t", err, outage.Away(err), outage.Nacked(err))
	}
}
