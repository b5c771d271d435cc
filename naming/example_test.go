package naming_test

import (
	"fmt"
	"time"

	"github.com/watermill-spillway/spillway/naming"
)

// The names of the default, and those for NATS.
func Example() {
	source := naming.Source{Topic: "orders", Handler: "billing", Delay: 5 * time.Second}
	for _, style := range []naming.Style{naming.Dots, naming.NATS} {
		scheme := naming.Scheme{Style: style}
		dead := scheme.DeadLetterTopic(source)
		fmt.Println(dead, scheme.ParkedTopic(dead), scheme.QuarantineTopic(dead), scheme.StageTopic(source))
	}
	// Output:
	// orders.dlq orders.dlq.parked orders.dlq.quarantine orders.billing.retry.5s
	// orders-dlq orders-dlq-parked orders-dlq-quarantine orders--billing-retry-5s
}

// The names that Spring Kafka uses for its dead-letter topics, those of a Pulsar subscription, and one topic for a
// whole service.
func ExampleScheme() {
	source := naming.Source{Topic: "orders", Handler: "billing"}
	for _, pattern := range []string{"{topic}-dlt", "{topic}-billing-DLQ", "{topic}.{handler}.dlq", "billing.dead"} {
		scheme := naming.Scheme{DeadLetter: pattern}
		if err := scheme.Validate(); err != nil {
			fmt.Println(err)
		}
		fmt.Println(scheme.DeadLetterTopic(source))
	}
	// Output:
	// orders-dlt
	// orders-billing-DLQ
	// orders.billing.dlq
	// billing.dead
}

// A name that the broker does not allow is changed, and distinguished by a hash. Names of other sources stay as they
// are.
func ExampleScheme_StageTopic() {
	scheme := naming.Scheme{Style: naming.Kafka}
	for _, handler := range []string{"billing", "bill customers", "bill/customers"} {
		fmt.Println(scheme.StageTopic(naming.Source{Topic: "orders", Handler: handler, Delay: time.Minute}))
	}
	// Output:
	// orders.billing.retry.1m
	// orders.bill-customers-hfe142ddbbe82.retry.1m
	// orders.bill-customers-h84a62193856d.retry.1m
}

// What a topic is for, by its name.
func ExampleScheme_IsDeadLetter() {
	scheme := naming.Scheme{}
	for _, topic := range []string{"orders", "orders.dlq", "orders.dlq.parked", "orders.billing.retry.5s"} {
		fmt.Println(topic, scheme.IsDeadLetter(topic), scheme.IsStage(topic))
	}
	// Output:
	// orders false false
	// orders.dlq true false
	// orders.dlq.parked true false
	// orders.billing.retry.5s false true
}
