package wmkafka

import (
	"errors"
	"fmt"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill/message"
)

// maxPublishing bounds what a producer holds of one Publish.
const maxPublishing = 1000

// publishMany publishes messages InFlight at a time, and stops after those among which one was refused.
func (p *Publisher) publishMany(topic string, messages []*message.Message) error {
	for first := 0; first < len(messages); first += p.config.InFlight {
		some := messages[first:min(first+p.config.InFlight, len(messages))]
		if refused, published, err := p.publishSome(topic, some); err != nil {
			return fmt.Errorf("wmkafka: %s: %w", describe(topic, first+refused+1, len(messages), first+published), err)
		}
	}
	return nil
}

// publishSome publishes messages at once. With an error it returns the index of the first refused message, and how many
// were published.
func (p *Publisher) publishSome(topic string, messages []*message.Message) (refused, published int, err error) {
	records := make([]*sarama.ProducerMessage, len(messages))
	for i, msg := range messages {
		if msg == nil {
			return i, 0, errNilMessage
		}
		if records[i], err = p.config.Marshaler.Marshal(topic, msg); err != nil {
			return i, 0, fmt.Errorf("cannot marshal message %s: %w", msg.UUID, err)
		}
	}
	errs, err := p.sendSome(topic, records)
	if err != nil {
		return 0, 0, err
	}
	// One that is too large takes those with it that went in the same request.
	alone := anyOf(errs, isTooLarge)
	for i, msg := range messages {
		own := errs[records[i]]
		if own != nil && alone {
			own = p.publish(topic, msg)
		}
		switch {
		case own == nil:
			published++
		case err == nil:
			refused, err = i, judged(own)
		}
	}
	return refused, published, err
}

func anyOf(errs map[*sarama.ProducerMessage]error, is func(error) bool) bool {
	for _, err := range errs {
		if is(err) {
			return true
		}
	}
	return false
}

// sendSome returns the errors of those that were refused.
func (p *Publisher) sendSome(topic string,
	records []*sarama.ProducerMessage) (map[*sarama.ProducerMessage]error, error) {
	p.sending.RLock()
	defer p.sending.RUnlock()
	if p.closed.Load() {
		return nil, ErrClosed
	}
	client, err := p.producers.of(topic, false)
	if err != nil {
		return nil, err
	}
	err = client.producer.SendMessages(records)
	var several sarama.ProducerErrors
	if err == nil || !errors.As(err, &several) {
		return nil, err
	}
	errs := make(map[*sarama.ProducerMessage]error, len(several))
	for _, one := range several {
		errs[one.Msg] = one.Err
	}
	return errs, nil
}
