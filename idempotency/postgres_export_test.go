package idempotency

import (
	"context"
	"database/sql/driver"
	"strings"

	"github.com/watermill-spillway/spillway/internal/pipelined"
)

// Unwrapping is a store whose pipeline goes through connections that stand in front of a driver's.
func Unwrapping(store Store) Store {
	send := store.(*sqlStore).postgres.Send
	through, _ := store.(*sqlStore).Pipelined(func(ctx context.Context, conn driver.Conn, statements ...pipelined.Statement) (changed []int64, err error) {
		front, ok := conn.(interface {
			Sends(statements string, send func(driver.Conn) error) error
		})
		if !ok {
			return send(ctx, conn, statements...)
		}
		var texts []string
		for _, statement := range statements {
			texts = append(texts, statement.Text)
		}
		err = front.Sends(strings.Join(texts, "; "), func(own driver.Conn) (err error) {
			changed, err = send(ctx, own, statements...)
			return err
		})
		return changed, err
	})
	return through
}
