package wmkafka

import (
	"errors"
	"strconv"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/poison"
)

// ByCoordinates takes topic, partition and offset as the key of an idempotent receiver, for producers that give messages
// no id: idempotency.ReceiverConfig.Key = wmkafka.ByCoordinates. A message that was redriven to its topic has the
// coordinates at which it first stood there, which its metadata tell, so that it is the same message. Like an id they are
// the producer's word. What a producer sends twice has two coordinates, and is applied twice. A message that did not come
// from Kafka is invalid.
func ByCoordinates(msg *message.Message) (string, error) {
	origin := Origin(msg)
	if origin.Topic == "" || origin.Partition == "" || origin.Offset == "" {
		const text = "the message has no partition and offset to take as its key: it did not come from Kafka"
		return "", classify.Invalid(errors.New(text), classify.Description(text))
	}
	if msg.Metadata.Get(poison.KeyRedriveCount) != "" {
		if first := poison.Read(msg); first.Redrive.Count > 0 && first.Origin.Topic == origin.Topic && isOffset(first.Origin.Partition) && isOffset(first.Origin.Offset) {
			origin.Partition, origin.Offset = first.Origin.Partition, first.Origin.Offset
		}
	}
	return origin.Topic + "/" + origin.Partition + "/" + origin.Offset, nil
}

func isOffset(text string) bool {
	_, err := strconv.ParseUint(text, 10, 63)
	return err == nil
}
