package idempotency

import (
	"context"
	"database/sql/driver"
	"strings"

	"github.com/watermill-spillway/spillway/internal/pipelined"
)

// ForgetPrepared forgets what connections have prepared.
func ForgetPrepared() {
	preparedOn.mu.Lock()
	defer preparedOn.mu.Unlock()
	clear(preparedOn.all)
}

// Unwrapping is a store whose pipeline goes through connections that stand in front of a driver's.
func Unwrapping(store Store) Store {
	s := store.(*postgresStore)
	return &postgresStore{base: s.base, send: func(ctx context.Context, conn driver.Conn, statements ...pipelined.Statement) (changed []int64, err error) {
		front, ok := conn.(interface {
			Sends(statements string, send func(driver.Conn) error) error
		})
		if !ok {
			return s.send(ctx, conn, statements...)
		}
		var texts []string
		for _, statement := range statements {
			texts = append(texts, statement.Text)
		}
		err = front.Sends(strings.Join(texts, "; "), func(own driver.Conn) (err error) {
			changed, err = s.send(ctx, own, statements...)
			return err
		})
		return changed, err
	}}
}
