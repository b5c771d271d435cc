package wmsql_test

import (
	"strings"
	"testing"

	"github.com/watermill-spillway/spillway/pubsub/wmsql"
)

// Bad input: a nil context is an error with a sentence.
func TestNilContext(t *testing.T) {
	_, subscribing := wmsql.NewSubscriber(nil, nil, wmsql.SubscriberConfig{}) //lint:ignore SA1012 it is the test
	_, publishing := wmsql.NewPublisher(nil, nil, wmsql.PublisherConfig{})    //lint:ignore SA1012 it is the test
	for what, err := range map[string]error{"NewSubscriber": subscribing, "NewPublisher": publishing} {
		if err == nil || !strings.Contains(err.Error(), "the context is nil") {
			t.Errorf("%s: %v", what, err)
		}
	}
}
