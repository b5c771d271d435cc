package crashtest

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/IBM/sarama"

	"github.com/watermill-spillway/spillway/internal/testing/services"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

// NothingIsLeft waits until Kafka has no topic and no consumer group whose name begins with topic.
func NothingIsLeft(t *testing.T, topic string) {
	t.Helper()
	admin := testkit.Must(sarama.NewClusterAdmin(services.Kafka(t), sarama.NewConfig()))
	defer func() { _ = admin.Close() }()
	var left []string
	testkit.Eventually(t, "nothing is left behind", func() bool {
		topics, groups := testkit.Must(admin.ListTopics()), testkit.Must(admin.ListConsumerGroups())
		left = slices.AppendSeq(slices.Collect(maps.Keys(topics)), maps.Keys(groups))
		left = slices.DeleteFunc(left, func(name string) bool { return !strings.HasPrefix(name, topic) })
		return len(left) == 0
	}, func() string { return strings.Join(left, ", ") })
}
