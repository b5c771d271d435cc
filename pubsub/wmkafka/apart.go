package wmkafka

import "github.com/IBM/sarama"

// apart is a strategy under a name of its own. The broker admits a member only if it knows a strategy that all others
// know. So members that keep the order of keys, and members that do not, are never in a group at the same time: the
// second kind waits until the first has left.
type apart struct{ sarama.BalanceStrategy }

func (a apart) Name() string { return "spillway-ordered-" + a.BalanceStrategy.Name() }

// keptApart gives config strategies that members without an order of keys do not know.
func keptApart(config *sarama.Config) {
	rebalance := &config.Consumer.Group.Rebalance
	if rebalance.Strategy != nil { //nolint:staticcheck // a user may have set it
		rebalance.Strategy = apart{rebalance.Strategy}
	}
	strategies := make([]sarama.BalanceStrategy, len(rebalance.GroupStrategies))
	for i, s := range rebalance.GroupStrategies {
		strategies[i] = apart{s}
	}
	rebalance.GroupStrategies = strategies
}
