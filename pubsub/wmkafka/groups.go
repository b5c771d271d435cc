package wmkafka

import (
	"fmt"
	"slices"
	"strings"
	"sync"
)

// groups are the consumer groups that this process is in, or is about to join. Members of Subscribers and of Stages
// cannot be in one group: the broker refuses those that come second, for as long as the others are there.
var groups = struct {
	sync.Mutex
	members map[groupName]int // subscriptions
}{members: make(map[groupName]int)}

type groupName struct {
	brokers, group string
	stages         bool
}

// enterGroup notes a subscription until leave is called. It refuses a group of the other kind.
func enterGroup(brokers []string, group string, stages bool) (leave func(), err error) {
	name := groupName{strings.Join(slices.Sorted(slices.Values(brokers)), ","), group, stages}
	other := name
	other.stages = !stages
	groups.Lock()
	defer groups.Unlock()
	if groups.members[other] > 0 {
		return nil, fmt.Errorf("the consumer group %q is used by a Subscriber and by Stages: they cannot share it; "+
			"give NewStages a group of its own", group)
	}
	groups.members[name]++
	return sync.OnceFunc(func() {
		groups.Lock()
		defer groups.Unlock()
		if groups.members[name]--; groups.members[name] == 0 {
			delete(groups.members, name)
		}
	}), nil
}
