package remote

import (
	"errors"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// What package operate makes data of, made again of the data.

func classOf(name string) (c classify.Class) {
	_ = c.UnmarshalText([]byte(name)) // a newer server may have more classes
	return c
}

func groupOf(v operate.CauseData) letters.Group {
	return letters.Group{
		Cause: v.Cause, Count: v.Count, Arrived: v.Arrived, LastMinute: v.LastMinute,
		FirstFailedAt: timeOf(v.FirstFailedAt),
		LastFailedAt:  timeOf(v.LastFailedAt), DeadLetterTopic: v.DeadLetterTopic, Topic: v.Topic, Handler: v.Handler,
		Class: classOf(v.Class), Reason: v.Reason, Type: v.Type, StackHash: v.StackHash, Example: v.Example,
		Description: v.Description,
	}
}

func headOf(v operate.LetterData) letters.Head {
	return letters.Head{
		Seq: v.Seq, Status: letters.Status(v.Status), Seen: v.Seen, StoredAt: timeOf(v.StoredAt), MessageID: v.ID,
		Cause: v.Cause, DeadLetterTopic: v.DeadLetterTopic, Topic: v.Topic, Handler: v.Handler, Class: classOf(v.Class),
		Reason: v.Reason, Type: v.Type, Description: v.Description, StackHash: v.StackHash,
		FirstFailedAt: timeOf(v.FirstFailedAt), LastFailedAt: timeOf(v.LastFailedAt), MarkedAt: timeOf(v.MarkedAt),
		Marked:   letters.Act{By: v.MarkedBy, Reason: v.MarkedReason, RedriveID: v.RedriveID},
		LeasedBy: v.LeasedBy, LeasedUntil: timeOf(v.LeasedUntil), Size: v.Bytes, SealKey: v.SealKey,
	}
}

// errWithheld is why a letter has no payload here.
var errWithheld = errors.New("the server does not show you payloads and metadata: that needs the right to look")

func letterOf(v operate.WholeData) operate.Letter {
	h := headOf(v.LetterData)
	l := operate.Letter{Key: v.SealKey, PayloadBytes: v.PayloadBytes}
	l.Seq, l.Status, l.Seen, l.StoredAt, l.Cause = h.Seq, h.Status, h.Seen, h.StoredAt, h.Cause
	l.MarkedAt, l.Marked, l.Size, l.SealKey, l.DeadLetterTopic = h.MarkedAt, h.Marked, h.Size, h.SealKey, h.DeadLetterTopic
	l.Original = message.NewMessage(v.ID, v.PayloadB64)
	if v.Payload != nil {
		l.Original.Payload = []byte(*v.Payload)
	}
	for key, value := range v.Metadata {
		l.Original.Metadata.Set(key, value)
	}
	l.Origin = poison.Origin{Topic: v.Topic, Handler: v.Handler, ConsumerGroup: v.Group, Partition: v.Partition,
		Offset: v.Offset, Key: []byte(v.Key)}
	l.Failure = poison.Failure{
		Class: h.Class, Reason: v.Reason, Type: v.Type, Description: v.Description, StackHash: v.StackHash,
		Stack:    v.Stack,
		Attempts: v.Attempts, Node: v.Node, FirstFailedAt: h.FirstFailedAt, LastFailedAt: h.LastFailedAt,
	}
	for _, a := range v.History {
		l.Failure.History = append(l.Failure.History,
			classify.Attempt{At: timeOf(a.At), Class: classOf(a.Class), Error: a.Error})
	}
	l.Redrive.Count, l.Redrive.By, l.Redrive.ID = v.Redrives, v.RedrivenBy, v.RedrivenID
	switch {
	case v.Sealed != "":
		l.Closed = errors.New(v.Sealed)
	case v.Payload == nil && v.PayloadB64 == nil && l.Status != letters.StatusErased:
		l.Closed = errWithheld
	}
	return l
}

func eventOf(v operate.EventData) letters.Event {
	return letters.Event{Number: v.Number, At: timeOf(v.At), Kind: letters.EventKind(v.Kind), Seq: v.Seq,
		MessageID: v.ID,
		Act:       letters.Act{By: v.By, Reason: v.Reason, RedriveID: v.RedriveID, Detail: v.Detail}}
}
