package wmamqp

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/rabbitmq/amqp091-go"
)

// returnedError is the error for a message that no queue took.
type returnedError struct {
	to     address
	answer amqp091.Return
}

func (e *returnedError) Error() string {
	return fmt.Sprintf("wmamqp: %s returned the message: %d %s: declare the queue, or bind one to the exchange", e.to,
		e.answer.ReplyCode, e.answer.ReplyText)
}

// whyReturned asks for the queue of a message that was returned. RabbitMQ returns messages for a classic queue whose
// node is down, as if there were no such queue: that is a word about the broker. Of another exchange than the default
// one the queues are not known.
func (p *Publisher) whyReturned(ctx context.Context, to address, err error) error {
	if returned := (*returnedError)(nil); !errors.As(err, &returned) || to.exchange != "" {
		return err
	}
	conn, failed := p.conn.open()
	if failed != nil {
		return err
	}
	if _, failed = backlog(ctx, conn, to.key); failed != nil && isNodeDown(failed) {
		return nacked(fmt.Sprintf("wmamqp: %s returned the message, because the node of its queue is down: %v", to, failed))
	}
	return err
}

// isNodeDown reports whether the broker says of a queue that it is there, on a node that is not.
func isNodeDown(err error) bool {
	var answer *amqp091.Error
	return errors.As(err, &answer) && answer.Code == amqp091.NotFound &&
		strings.Contains(answer.Reason, "down or inaccessible")
}
