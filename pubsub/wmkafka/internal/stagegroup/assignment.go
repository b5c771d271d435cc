package stagegroup

import (
	"encoding/json"
	"fmt"
	"sync"

	"github.com/IBM/sarama"
)

// strategy assigns partitions in user data. See the package's documentation.
type strategy struct {
	sarama.BalanceStrategy // distributes

	mu   sync.Mutex
	plan sarama.BalanceStrategyPlan
}

func newStrategy() *strategy {
	return &strategy{BalanceStrategy: sarama.NewBalanceStrategyRoundRobin()}
}

// strategyName distinguishes these members from those of sarama, which would not understand the assignment.
const strategyName = "spillway-stages"

// Name is that of the protocol of the group.
func (s *strategy) Name() string { return strategyName }

// Plan distributes the partitions, and returns a plan of sarama's in which no member has any.
func (s *strategy) Plan(members map[string]sarama.ConsumerGroupMemberMetadata,
	topics map[string][]int32) (sarama.BalanceStrategyPlan, error) {
	plan, err := s.BalanceStrategy.Plan(members, topics)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.plan = plan
	none := sarama.BalanceStrategyPlan{}
	for member := range members {
		none[member] = nil
	}
	return none, nil
}

// AssignmentData returns the partitions of a member.
func (s *strategy) AssignmentData(member string, _ map[string][]int32, _ int32) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return json.Marshal(s.plan[member])
}

// assigned asks the coordinator for the partitions of this member.
func (g *Group) assigned(client sarama.Client, member string) (map[string][]int32, error) {
	group, err := describe(client, g.config.Group)
	if err != nil {
		return nil, err
	}
	own := group.Members[member]
	if group.State != "Stable" || own == nil { // another generation is on its way
		return nil, sarama.ErrRebalanceInProgress
	}
	assignment, err := own.GetMemberAssignment()
	if err != nil || assignment == nil {
		return nil, fmt.Errorf("the assignment of member %s: %w", member, err)
	}
	var partitions map[string][]int32
	if err := json.Unmarshal(assignment.UserData, &partitions); err != nil {
		return nil, fmt.Errorf("the assignment of member %s: %w", member, err)
	}
	return partitions, nil
}

// describe asks a group's coordinator about the group, once more if the group has moved.
func describe(client sarama.Client, group string) (*sarama.GroupDescription, error) {
	for try := 1; ; try++ {
		described, err := describeOnce(client, group)
		if err == nil || try == 3 {
			return described, err
		}
		if err := client.RefreshCoordinator(group); err != nil {
			return nil, err
		}
	}
}

func describeOnce(client sarama.Client, group string) (*sarama.GroupDescription, error) {
	coordinator, err := client.Coordinator(group)
	if err != nil {
		return nil, err
	}
	response, err := coordinator.DescribeGroups(&sarama.DescribeGroupsRequest{Groups: []string{group}})
	if err != nil {
		_ = coordinator.Close()
		return nil, err
	}
	if len(response.Groups) != 1 {
		return nil, sarama.ErrIncompleteResponse
	}
	if err := response.Groups[0].Err; err != sarama.ErrNoError {
		return nil, err
	}
	return response.Groups[0], nil
}
