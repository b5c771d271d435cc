package wmkafka

import (
	"errors"
	"slices"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/safecall"
	"github.com/watermill-spillway/spillway/poison"
)

// read unmarshals a record and never fails: of what u cannot read it makes a message that a poison.Queue sets aside,
// with the record's value as the payload and its headers as metadata.
func read(u kafka.Unmarshaler, record *sarama.ConsumerMessage) *message.Message {
	clip(record)
	var msg *message.Message
	err := safecall.Call("unmarshaler", func() (err error) {
		msg, err = u.Unmarshal(record)
		return err
	})
	if err == nil && msg == nil {
		err = errors.New("the unmarshaler returned neither a message nor an error")
	}
	if err != nil {
		msg = plainMessage(record)
		carry(msg, record, true)
		poison.MarkUnreadable(msg, err)
	}
	if msg.Acked() == nil { // not made by NewMessage: an ack of it would not be seen
		msg = msg.Copy()
	}
	return msg
}

// clip takes away the room behind a record's bytes: it is where the next records are, and a handler that appends to its
// payload would write into them.
func clip(record *sarama.ConsumerMessage) {
	record.Key = slices.Clip(record.Key)
	record.Value = slices.Clip(record.Value)
}
