package verdicts_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/components/cqrs"
	"github.com/ThreeDotsLabs/watermill/components/forwarder"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	gogo "github.com/gogo/protobuf/proto"
	gogotypes "github.com/gogo/protobuf/types"
	golang "github.com/golang/protobuf/proto" //lint:ignore SA1019 its users have its errors
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

// unreadable judges err as a message that cannot be read.
func unreadable(t *testing.T, name string, err error) {
	t.Helper()
	check(t, name, err, classify.ClassInvalid)
	v := judge(err)
	testkit.Check(t, v.Reason == classify.ReasonUnmarshal, "%s: reason %q: %v", name, v.Reason, err)
}

const noProtobuf = "no protobuf"

// Feature C4: what the libraries for protobuf say of bytes that are none.
func TestKnowledgeProtobuf(t *testing.T) {
	for name, payload := range map[string]string{
		"text": noProtobuf, "illegal wire type": "\x0f", "illegal tag": "\x00\x01", "end of group": "\x0c", "truncated": "\x1a\x05x",
		"overflow":        "\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
		"negative length": "\x1a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
	} {
		unreadable(t, "google, "+name, proto.Unmarshal([]byte(payload), new(timestamppb.Timestamp)))
		unreadable(t, "golang, "+name, golang.Unmarshal([]byte(payload), new(timestamppb.Timestamp)))
		if err := gogo.Unmarshal([]byte(payload), new(gogotypes.Timestamp)); err == io.ErrUnexpectedEOF { // anything that is read says so
			check(t, "gogo, "+name, err, classify.ClassUnknown)
		} else {
			unreadable(t, "gogo, "+name, err)
		}
	}
	unreadable(t, "gogo, wrong wire type", gogo.Unmarshal([]byte("\x0a\x01x"), new(gogotypes.Timestamp)))
	unreadable(t, "required", proto.Unmarshal(nil, new(descriptorpb.UninterpretedOption_NamePart)))
	unreadable(t, "required, golang", golang.Unmarshal(nil, new(descriptorpb.UninterpretedOption_NamePart)))
	unreadable(t, "JSON", protojson.Unmarshal([]byte(`{"seconds":}`), new(timestamppb.Timestamp)))
	unreadable(t, "JSON of another type", protojson.Unmarshal([]byte(`{"price":1}`), new(descriptorpb.FileDescriptorProto)))
	unreadable(t, "text", prototext.Unmarshal([]byte(`price: 1`), new(timestamppb.Timestamp)))
}

// gogoEvent has no generated code: gogo reads it by reflection.
type gogoEvent struct {
	ID   *string `protobuf:"bytes,1,req,name=id"`
	Name string  `protobuf:"bytes,2,opt,name=name,proto3"`
}

func (e *gogoEvent) Reset()         { *e = gogoEvent{} }
func (e *gogoEvent) String() string { return "an event" }
func (*gogoEvent) ProtoMessage()    {}

// Feature C4: what gogo says of a message that it reads by reflection.
func TestKnowledgeGogo(t *testing.T) {
	for name, payload := range map[string]string{
		"required field is missing": "\x12\x01x", "illegal tag": "\x00\x01", "unknown wire type": "\x1f", "no UTF-8": "\x0a\x01x\x12\x01\xff",
	} {
		unreadable(t, name, gogo.Unmarshal([]byte(payload), new(gogoEvent)))
	}
}

// deaf panics where gogo calls it.
type deaf struct{ gogoEvent }

func (*deaf) Unmarshal([]byte) error { panic("a field that it does not know") }

// Feature C4: what Watermill's marshalers say of a message that they cannot read.
func TestKnowledgeMarshalers(t *testing.T) {
	msg := message.NewMessage("1", message.Payload(noProtobuf))
	for name, err := range map[string]error{
		"ProtoMarshaler":                          cqrs.ProtoMarshaler{}.Unmarshal(msg, new(timestamppb.Timestamp)),
		"ProtobufMarshaler, of golang":            cqrs.ProtobufMarshaler{}.Unmarshal(msg, new(timestamppb.Timestamp)),
		"ProtobufMarshaler, of gogo":              cqrs.ProtobufMarshaler{}.Unmarshal(msg, new(gogotypes.Timestamp)),
		"ProtobufMarshaler, of gogo, no fallback": cqrs.ProtobufMarshaler{DisableStdProtoFallback: true}.Unmarshal(msg, new(gogotypes.Timestamp)),
		"ProtobufMarshaler, a panic":              cqrs.ProtobufMarshaler{DisableStdProtoFallback: true}.Unmarshal(msg, new(deaf)),
		"JSONMarshaler":                           cqrs.JSONMarshaler{}.Unmarshal(msg, new(struct{})),
	} {
		unreadable(t, name, err)
	}
	for payload, into := range map[string]any{
		`{"b":"no base64 ~"}`: new(struct{ B []byte }), `{"t":"yesterday"}`: new(struct{ T time.Time }),
	} {
		unreadable(t, payload, cqrs.JSONMarshaler{}.Unmarshal(message.NewMessage("1", []byte(payload)), into))
	}
}

// failing runs one message through a handler that add adds to a router, and returns the handler's error.
func failing(t *testing.T, msg *message.Message, add func(*message.Router, message.Subscriber) error) error {
	t.Helper()
	pubsub := gochannel.NewGoChannel(gochannel.Config{Persistent: true}, nil)
	found := make(chan error, 1)
	testkit.NoError(t, pubsub.Publish("events", msg))
	defer testkit.RunRouter(t, watermill.NopLogger{}, func(router *message.Router) {
		router.AddMiddleware(func(h message.HandlerFunc) message.HandlerFunc {
			return func(msg *message.Message) ([]*message.Message, error) {
				_, err := h(msg)
				found <- err
				return nil, nil
			}
		})
		testkit.NoError(t, add(router, pubsub))
	})()
	return <-found
}

type ordered struct{ ID string }

// Feature C4: a cqrs event processor that does not know the type of an event, with AckOnUnknownEvent false. That of a
// group is in TestMigratingUnknownEvent.
func TestKnowledgeUnknownEvent(t *testing.T) {
	msg := message.NewMessage("1", []byte(`{}`))
	msg.Metadata.Set("name", "no.such, expected Event")
	err := failing(t, msg, func(router *message.Router, sub message.Subscriber) error {
		return testkit.Must(cqrs.NewEventProcessorWithConfig(router, cqrs.EventProcessorConfig{
			GenerateSubscribeTopic: func(cqrs.EventProcessorGenerateSubscribeTopicParams) (string, error) {
				return "events", nil
			},
			SubscriberConstructor: func(cqrs.EventProcessorSubscriberConstructorParams) (message.Subscriber, error) {
				return sub, nil
			},
			Marshaler: cqrs.JSONMarshaler{},
		})).AddHandlers(cqrs.NewEventHandler("shop", func(context.Context, *ordered) error { return nil }))
	})
	check(t, "EventProcessor", err, classify.ClassInvalid)
}

// Feature C4: envelopes that the forwarder cannot open.
func TestKnowledgeForwarder(t *testing.T) {
	for name, payload := range map[string]string{
		"no JSON": "no envelope", "another JSON": `[]`, "no topic": `{"uuid":"1"}`, "no base64": `{"destination_topic":"orders","payload":"~"}`,
	} {
		err := failing(t, message.NewMessage("1", []byte(payload)), func(router *message.Router, sub message.Subscriber) error {
			_, err := forwarder.NewForwarder(sub, refusing{}, watermill.NopLogger{}, forwarder.Config{ForwarderTopic: "events", Router: router})
			return err
		})
		unreadable(t, name, err)
	}
}

type refusing struct{ message.Publisher }

// Feature C4: errors that only look like those of a marshaler stay unknown.
func TestKnowledgeOfMessagesIsNarrow(t *testing.T) {
	for _, text := range []string{
		"proto: ", "proto: the file is unavailable", "cannot find: received unexpected event type a, expected b",
		"unknown destination topic", "received unexpected event type a",
	} {
		check(t, text, errors.New(text), classify.ClassUnknown)
	}
	_, err := json.Marshal(any(func() {})) //lint:ignore SA1026 the error is wanted
	check(t, "json.Marshal", err, classify.ClassPermanent)
}
