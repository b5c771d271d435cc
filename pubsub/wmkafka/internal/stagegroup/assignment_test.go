package stagegroup

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/IBM/sarama"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/watermill-spillway/spillway/internal/testkit"
)

func TestMain(m *testing.M) {
	// Sarama's metrics have one goroutine for the whole process.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/rcrowley/go-metrics.(*meterArbiter).tick"))
}

// Each partition has one member, which subscribes to its topic, and sarama assigns none.
func TestAssignment(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		topics := map[string][]int32{}
		for i := range rapid.IntRange(1, 6).Draw(t, "topics") {
			for p := range rapid.IntRange(1, 5).Draw(t, "partitions") {
				topics[fmt.Sprint("topic-", i)] = append(topics[fmt.Sprint("topic-", i)], int32(p))
			}
		}
		members, subscribed := map[string]sarama.ConsumerGroupMemberMetadata{}, map[string]bool{}
		for i := range rapid.IntRange(1, 5).Draw(t, "members") {
			var own []string
			for topic := range topics {
				if i == 0 || rapid.Bool().Draw(t, "subscribes") {
					own = append(own, topic)
					subscribed[topic] = true
				}
			}
			members[fmt.Sprint("member-", i)] = sarama.ConsumerGroupMemberMetadata{Topics: own}
		}
		s := newStrategy()
		plan, err := s.Plan(members, topics)
		testkit.NoError(t, err)
		seen := map[string]int{}
		for member, metadata := range members {
			testkit.Require(t, len(plan[member]) <= 0, "sarama starts partitions: %v", plan)
			data, err := s.AssignmentData(member, nil, 1)
			testkit.NoError(t, err)
			var own map[string][]int32
			testkit.NoError(t, json.Unmarshal(data, &own))
			for topic, partitions := range own {
				testkit.Require(t, slices.Contains(metadata.Topics, topic), "%s has %s", member, topic)
				for _, p := range partitions {
					seen[fmt.Sprint(topic, "/", p)]++
				}
			}
		}
		for topic, partitions := range topics {
			for _, p := range partitions {
				if n := seen[fmt.Sprint(topic, "/", p)]; n != 1 && subscribed[topic] {
					t.Fatalf("%s/%d has %d members", topic, p, n)
				}
			}
		}
	})
}
