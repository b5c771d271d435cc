package jetstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	natsgo "github.com/nats-io/nats.go"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/naming"
	"github.com/watermill-spillway/spillway/poison"
)

// Undelivered makes dead letters of the messages that consumers with MaxDeliver gave up: consumers of other programs,
// since those of Subscriber have no limit. The server leaves such a message in its stream, delivers it to that consumer
// no more, and publishes an advisory. A stream keeps the advisories, so none is missed while no process collects.
type Undelivered struct {
	Config
	// Topic is that of the messages. Only advisories of its stream are taken, and only its messages.
	Topic string
	// Dead takes the letters: a Publisher, or a letters.Store. It must confirm them.
	Dead message.Publisher
	// Naming names the topics of the letters. Give the scheme that the channel has.
	Naming naming.Scheme
	// Logger gets the advisories that name no message. Default: none.
	Logger watermill.LoggerAdapter
}

const (
	advisories  = "$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES."
	maxAdvisory = 4 << 10 // bytes
	collector   = "spillway"
)

// advisory is what the server says of a message that it gave up.
type advisory struct {
	Type       string    `json:"type"`
	Timestamp  time.Time `json:"timestamp"`
	Stream     string    `json:"stream"`
	Consumer   string    `json:"consumer"`
	Sequence   uint64    `json:"stream_seq"`
	Deliveries int       `json:"deliveries"`
}

// Run collects until ctx ends. Several processes may run it and share the advisories.
func (u Undelivered) Run(ctx context.Context) error {
	u.Config = u.withDefaults()
	if u.Logger == nil {
		u.Logger = watermill.NopLogger{}
	}
	conn, err := u.connect()
	if err != nil {
		return err
	}
	defer conn.Close()
	js, err := conn.JetStream(natsgo.MaxWait(u.PublishWait))
	if err != nil {
		return err
	}
	subscription, err := u.subscribe(js)
	if err != nil {
		return fmt.Errorf("advisories of topic %q: %w", u.Topic, err)
	}
	for ctx.Err() == nil {
		fetching, cancel := context.WithTimeout(ctx, u.PublishWait)
		batch, err := subscription.Fetch(1, natsgo.Context(fetching))
		cancel()
		if err != nil && ctx.Err() == nil && !errors.Is(err, context.DeadlineExceeded) {
			u.Logger.Error("The advisories cannot be read", err, watermill.LogFields{"topic": u.Topic})
			pause(ctx, nakDelay)
		}
		for _, raw := range batch {
			u.settle(ctx, js, raw)
		}
	}
	return nil
}

// subscribe makes the stream that keeps the advisories, and the consumer that all processes share.
func (u Undelivered) subscribe(js natsgo.JetStreamContext) (*natsgo.Subscription, error) {
	name, subject := Name(u.Topic)+"-undelivered", advisories+Name(u.Topic)+".*"
	_, err := js.StreamInfo(name)
	if errors.Is(err, natsgo.ErrStreamNotFound) {
		_, err = js.AddStream(&natsgo.StreamConfig{Name: name, Subjects: []string{subject}})
	}
	if err != nil {
		return nil, err
	}
	return js.PullSubscribe(subject, collector, natsgo.BindStream(name), natsgo.AckExplicit(), natsgo.MaxDeliver(-1),
		natsgo.AckWait(u.AckWait))
}

// settle acks an advisory when its letter is placed. One that names no message of the topic is dropped: any client that
// may publish to its subject can have written it.
func (u Undelivered) settle(ctx context.Context, js natsgo.JetStreamContext, raw *natsgo.Msg) {
	l, err := u.letter(ctx, js, raw)
	if err == nil {
		err = u.place(l)
	}
	switch {
	case err == nil:
		_ = raw.AckSync(natsgo.Context(ctx)) // without it the letter is placed again
	case errors.Is(err, errNoMessage):
		u.Logger.Error("An advisory names no message", err, watermill.LogFields{"topic": u.Topic})
		_ = raw.Term()
	default:
		u.Logger.Error("A letter was not placed, and is tried again", err, watermill.LogFields{"topic": u.Topic})
		_ = raw.NakWithDelay(nakDelay)
		pause(ctx, nakDelay)
	}
}

// place makes the topic with its first letter: its name may have that of the consumer.
func (u Undelivered) place(l poison.Letter) error {
	topic := u.Naming.DeadLetterTopic(naming.Source{Topic: u.Topic, Handler: l.Origin.ConsumerGroup,
		Class: l.Failure.Class})
	if dead, is := u.Dead.(poison.Initializer); is {
		if err := dead.InitializeTopics(topic); err != nil {
			return err
		}
	}
	return u.Dead.Publish(topic, l.Encode())
}

var errNoMessage = errors.New("it names no message of the topic")

// letter fetches the message by its sequence. Its place is what the server says, and nothing of its metadata.
func (u Undelivered) letter(ctx context.Context, js natsgo.JetStreamContext,
	raw *natsgo.Msg) (none poison.Letter, _ error) {
	a, err := u.parse(raw)
	if err != nil {
		return none, fmt.Errorf("%w: %w", errNoMessage, err)
	}
	stored, err := js.GetMsg(a.Stream, a.Sequence, natsgo.Context(ctx))
	if errors.Is(err, natsgo.ErrMsgNotFound) {
		return none, fmt.Errorf("%w: %d is gone from stream %s", errNoMessage, a.Sequence, a.Stream)
	}
	if err != nil {
		return none, err
	}
	if stored.Subject != u.Topic {
		return none, fmt.Errorf("%w: %d is of subject %q", errNoMessage, a.Sequence, stored.Subject)
	}
	received := &natsgo.Msg{Subject: stored.Subject, Header: stored.Header, Data: stored.Data}
	msg, err := u.Marshaler.Unmarshal(received)
	if err != nil || msg == nil {
		msg = unread(fmt.Sprintf("%s-%d", a.Stream, a.Sequence), received)
	}
	l := poison.Read(msg) // with the redrives there were
	l.Origin = poison.Origin{Topic: stored.Subject, Offset: fmt.Sprint(stored.Sequence), Timestamp: stored.Time,
		MessageID: l.Original.UUID, ConsumerGroup: a.Consumer}
	l.Failure = poison.Failure{Reason: classify.ReasonMaxDeliveries, Attempts: a.Deliveries, LastFailedAt: a.Timestamp,
		Description: fmt.Sprintf("consumer %s gave it up after %d deliveries", a.Consumer, a.Deliveries)}
	return l, nil
}

// parse believes an advisory that is of the topic's stream and of the consumer that its subject names.
func (u Undelivered) parse(raw *natsgo.Msg) (a advisory, err error) {
	if len(raw.Data) > maxAdvisory {
		return a, fmt.Errorf("it has %d bytes", len(raw.Data))
	}
	if err := json.Unmarshal(raw.Data, &a); err != nil {
		return a, err
	}
	if a.Type != "io.nats.jetstream.advisory.v1.max_deliver" || a.Stream != Name(u.Topic) || a.Sequence == 0 ||
		a.Deliveries < 0 || strings.TrimPrefix(raw.Subject, advisories) != a.Stream+"."+a.Consumer {
		return a, fmt.Errorf("%+v at %s", a, raw.Subject)
	}
	return a, nil
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
