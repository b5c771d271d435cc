package columns_test

import (
	"errors"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	wmnats "github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats.go"

	"github.com/watermill-spillway/spillway/conformance"
	"github.com/watermill-spillway/spillway/examples/nats/jetstream"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

// natsBroker is NATS JetStream as the suite's target sees it: its address, and how messages are written.
type natsBroker struct {
	url       string
	marshaler wmnats.MarshalerUnmarshaler
}

// ackWait is 20 s, and in the processes that the suite kills 5 s: so soon the messages of such a process come again.
// Services should rather have the default of 30 s.
func ackWait() time.Duration {
	if os.Getenv(conformance.ChildVariable) != "" {
		return 5 * time.Second
	}
	return 20 * time.Second
}

func (b natsBroker) config(url, group string) jetstream.Config {
	config := jetstream.Config{URL: url, Group: group, Marshaler: pickyNATS{b.marshaler}, AckWait: ackWait()}
	if strings.Contains(group, ".retry") { // a stage's
		config.InFlight = 16
	}
	return config
}

func (b natsBroker) publisher(t testing.TB) *jetstream.Publisher {
	return testkit.Must(jetstream.NewPublisher(b.config(b.url, ""), nil))
}

func (b natsBroker) subscriber(t testing.TB, group, url string) *jetstream.Subscriber {
	t.Helper()
	sub := testkit.Must(jetstream.NewSubscriber(b.config(url, group), nil))
	t.Cleanup(func() { _ = sub.Close() })
	return sub
}

// through is a publisher that gives up after two seconds.
func (b natsBroker) through(t testing.TB, address string) *jetstream.Publisher {
	t.Helper()
	config := b.config(b.at(t, address), "")
	config.PublishWait = 2 * time.Second
	config.Options = []nats.Option{nats.Timeout(time.Second), nats.PingInterval(time.Second)}
	return testkit.Must(jetstream.NewPublisher(config, nil))
}

// address is the broker's host:port.
func (b natsBroker) address() string {
	_, address, _ := strings.Cut(b.url, "//")
	if _, host, user := strings.Cut(address, "@"); user {
		address = host
	}
	return address
}

// at is the broker's URL with another address.
func (b natsBroker) at(t testing.TB, address string) string {
	t.Helper()
	at := testkit.Must(url.Parse(b.url))
	at.Host = address
	return at.String()
}

// admin does something on a connection of its own, because the broker may have been restarted.
func (b natsBroker) admin(t testing.TB, do func(nats.JetStreamContext) error) {
	t.Helper()
	conn := testkit.Must(nats.Connect(b.url))
	defer conn.Close()
	js, err := conn.JetStream()
	if err == nil {
		err = do(js)
	}
	testkit.NoError(t, err)
}

func (b natsBroker) createStream(t testing.TB, topic string) {
	t.Helper()
	b.admin(t, func(js nats.JetStreamContext) error { return jetstream.Create(js, topic) })
	t.Cleanup(func() { b.deleteStream(t, topic) })
}

func (b natsBroker) deleteStream(t testing.TB, topic string) {
	t.Helper()
	b.admin(t, func(js nats.JetStreamContext) error {
		if err := js.DeleteStream(jetstream.Name(topic)); !errors.Is(err, nats.ErrStreamNotFound) {
			return err
		}
		return nil
	})
}

// readOnly makes a stream that is full and refuses what comes then.
func (b natsBroker) readOnly(t testing.TB, topic string) (writable func()) {
	t.Helper()
	full := nats.StreamConfig{Name: jetstream.Name(topic), Subjects: []string{topic}, MaxMsgs: 1, Discard: nats.DiscardNew}
	b.admin(t, func(js nats.JetStreamContext) error {
		if _, err := js.AddStream(&full); err != nil {
			return err
		}
		_, err := js.Publish(topic, []byte("filler"))
		return err
	})
	t.Cleanup(func() { b.deleteStream(t, topic) })
	return func() {
		b.admin(t, func(js nats.JetStreamContext) error {
			full.MaxMsgs = -1
			_, err := js.UpdateStream(&full)
			return errors.Join(err, js.DeleteMsg(full.Name, 1))
		})
	}
}

// pickyNATS cannot read everything.
type pickyNATS struct{ wmnats.MarshalerUnmarshaler }

// Marshal sends what must not be read as it is: a marshaler that puts everything into the payload would hide it.
func (p pickyNATS) Marshal(topic string, msg *message.Message) (*nats.Msg, error) {
	if string(msg.Payload) == conformance.Unreadable {
		return (&wmnats.NATSMarshaler{}).Marshal(topic, msg)
	}
	return p.MarshalerUnmarshaler.Marshal(topic, msg)
}

func (p pickyNATS) Unmarshal(raw *nats.Msg) (*message.Message, error) {
	if string(raw.Data) == conformance.Unreadable {
		return nil, errors.New("no such schema")
	}
	return p.MarshalerUnmarshaler.Unmarshal(raw)
}

// hostile are messages that watermill-nats cannot read, or that its marshaler turns into commands to the server.
func (b natsBroker) hostile() []conformance.Hostile {
	send := func(header nats.Header, data string) func(testing.TB, string) {
		return func(t testing.TB, topic string) {
			b.admin(t, func(js nats.JetStreamContext) error {
				msg := nats.NewMsg(topic)
				msg.Data, msg.Header = []byte(data), header
				msg.Header.Set(wmnats.WatermillUUIDHdr, "hostile")
				_, err := js.PublishMsg(msg)
				return err
			})
		}
	}
	return []conformance.Hostile{
		{Name: "a message of a plain client", Publish: send(nats.Header{}, `{"n":1}`)},
		{Name: "a header twice", Publish: send(nats.Header{"k": {"one", "two"}}, `{"n":1}`)},
		{Name: "no payload", Publish: send(nats.Header{}, "")},
		{Name: "a header of the server", Publish: send(nats.Header{nats.MsgIdHdr: {"same"}, "Nats-Any": {"thing"}}, `{"n":1}`)},
		{Name: "a message the marshaler refuses", Publish: send(nats.Header{}, conformance.Unreadable), Check: func(t testing.TB, msg *message.Message) {
			testkit.Check(t, string(msg.Payload) == conformance.Unreadable, "set aside with payload %q", msg.Payload)
		}},
	}
}
