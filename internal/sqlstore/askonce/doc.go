// Package askonce lets one instance of a service ask a costly question, and all instances read the answer.
//
//	q, err := askonce.New(ctx, db, "shop", "letters/1")
//	a, err := q.Ask(ctx, 30*time.Second, func(ctx context.Context) ([]byte, error) { … })
//
// The answer is a row of the table spillway_answers. An instance that finds an answer that is too old takes the turn to
// ask: it moves turn_at on, with one statement that holds only if no other instance did. So two turns are never closer
// than the interval, whatever the number of instances and calls. All others read the row by its key.
//
// An instance that dies, hangs or fails in its turn costs one interval: then the turn is free again, and there is no
// lease to wait for. Ages are by the database's clock, so clocks of instances that differ do not matter.
package askonce
