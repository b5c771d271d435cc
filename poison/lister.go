package poison

import "context"

// Lister is a publisher that can tell in which topics messages wait.
type Lister interface {
	// ListWaiting returns the topics whose names begin with prefix and hold messages that the consumer group of the same
	// name has not consumed, all of them where there is no such group, or where the broker has none.
	ListWaiting(ctx context.Context, prefix string) (map[string]int, error)
}
