// Package protobuf shows protobuf payloads as JSON in a console, and encodes what was edited, by a descriptor set:
//
//	protoc --include_imports --descriptor_set_out=shop.pb shop.proto
//
// Copy it, and give it to the console:
//
//	decoder, err := protobuf.New(set, map[string]string{"orders": "shop.Order"}) // the message of each topic
//	console.New(console.Config{Decode: decoder.Decode, Encode: decoder.Encode, ...})
package protobuf

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protopath"
	"google.golang.org/protobuf/reflect/protorange"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Decoder decodes and encodes by the topic of a letter. It is safe for concurrent use.
type Decoder struct {
	types  map[string]protoreflect.MessageDescriptor // by topic
	nested *dynamicpb.Types                          // of google.protobuf.Any
}

// New returns a Decoder with the messages of a descriptor set, by the topics that have them.
func New(set []byte, messages map[string]string) (*Decoder, error) {
	var described descriptorpb.FileDescriptorSet
	if err := proto.Unmarshal(set, &described); err != nil {
		return nil, fmt.Errorf("read the descriptor set: %w", err)
	}
	files, err := protodesc.NewFiles(&described)
	if err != nil {
		return nil, fmt.Errorf("the descriptor set is not whole, use --include_imports: %w", err)
	}
	d := &Decoder{map[string]protoreflect.MessageDescriptor{}, dynamicpb.NewTypes(files)}
	for topic, name := range messages {
		found, err := files.FindDescriptorByName(protoreflect.FullName(name))
		of, ok := found.(protoreflect.MessageDescriptor)
		if err != nil || !ok {
			return nil, fmt.Errorf("the descriptor set has no message %q, of topic %q", name, topic)
		}
		d.types[topic] = of
	}
	return d, nil
}

// Decode is for console.Config. A payload of another topic is shown as it is.
func (d *Decoder) Decode(_ context.Context, l letters.Letter) (text, mediaType string, err error) {
	m, err := d.read(l)
	if m == nil || err != nil {
		return "", "", err
	}
	line, err := protojson.MarshalOptions{UseProtoNames: true, Resolver: d.nested}.Marshal(m)
	if err != nil {
		return "", "", err
	}
	var lines, compact bytes.Buffer // protojson puts in spaces at random
	if err = json.Compact(&compact, line); err == nil {
		err = json.Indent(&lines, compact.Bytes(), "", "  ")
	}
	return lines.String(), "application/json", err
}

// Encode is for console.Config. It refuses a payload with fields that the descriptors do not know: JSON has lost them.
func (d *Decoder) Encode(_ context.Context, l letters.Letter, text string) ([]byte, error) {
	was, err := d.read(l)
	switch {
	case err != nil:
		return nil, err
	case was == nil:
		return nil, errors.New("no message is known for the topic")
	}
	err = protorange.Range(was, func(p protopath.Values) error {
		if m, ok := p.Index(-1).Value.Interface().(protoreflect.Message); ok && len(m.GetUnknown()) > 0 {
			return errors.New("the payload has fields that the descriptor set does not know, and they would be lost: use a newer one")
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	m := dynamicpb.NewMessage(was.Descriptor())
	if err := (protojson.UnmarshalOptions{Resolver: d.nested}).Unmarshal([]byte(text), m); err != nil {
		return nil, err
	}
	return proto.MarshalOptions{Deterministic: true}.Marshal(m)
}

// read returns nil for a topic without a message.
func (d *Decoder) read(l letters.Letter) (*dynamicpb.Message, error) {
	of := d.types[l.Origin.Topic]
	if of == nil {
		return nil, nil
	}
	m := dynamicpb.NewMessage(of)
	return m, proto.UnmarshalOptions{Resolver: d.nested, RecursionLimit: 100}.Unmarshal(l.Original.Payload, m)
}
