package columns_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-nats/v2/pkg/jetstream"
	wmnats "github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats"
	"github.com/ThreeDotsLabs/watermill/message"
	natsgo "github.com/nats-io/nats.go"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/internal/testing/services"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/middleware/stages"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// tracking is watermill-nats's publisher with TrackMsgID, or without.
func tracking(t *testing.T, conn *natsgo.Conn, marshaler wmnats.Marshaler, track bool) *wmnats.Publisher {
	t.Helper()
	return testkit.Must(wmnats.NewPublisherWithNatsConn(conn, wmnats.PublisherPublishConfig{
		Marshaler: marshaler, SubjectCalculator: wmnats.DefaultSubjectCalculator, JetStream: wmnats.JetStreamConfig{TrackMsgID: track},
	}, nil))
}

// trackingJS is the publisher of watermill-nats's package jetstream.
func trackingJS(t *testing.T, track bool) message.Publisher {
	t.Helper()
	return testkit.Must(jetstream.NewPublisher(jetstream.PublisherConfig{Conn: new(natsgo.Conn), TrackMessageID: track}))
}

// Feature V1, promise P1: with TrackMsgID, or TrackMessageID of package jetstream, a NATS server drops a message that comes back with its id, and confirms it.
// No part takes such a publisher, however it is decorated.
func TestNATSTracksIDsRefused(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	db := testkit.Must(sql.Open("sqlite", filepath.Join(t.TempDir(), "letters.db")))
	defer db.Close()
	store := testkit.Must(letters.NewStore(ctx, db, letters.Config{}))
	all := testkit.Must(campaigns.New(ctx, store, campaigns.Config{Allow: []string{"orders"}}))
	rules := redrive.Rules{Allow: []string{"orders"}}
	parts := map[string]func(message.Publisher) error{
		"spillway.New": func(pub message.Publisher) error {
			_, err := spillway.New(ctx, spillway.Config{Publisher: pub})
			return err
		},
		"poison.NewQueue": func(pub message.Publisher) error { _, err := poison.NewQueue(pub, poison.QueueConfig{}); return err },
		"a fallback": func(pub message.Publisher) error {
			_, err := poison.NewQueue(store, poison.QueueConfig{Fallbacks: []poison.Sink{{Publisher: pub}}})
			return err
		},
		"stages": func(pub message.Publisher) error {
			queue := testkit.Must(poison.NewQueue(store, poison.QueueConfig{}))
			_, err := stages.New(queue, stages.Config{Publisher: pub, Subscriber: func(string, string) (message.Subscriber, error) { return nil, nil }})
			return err
		},
		"redrive.NewHandler": func(pub message.Publisher) error {
			_, err := redrive.NewHandler(pub, redrive.HandlerConfig{Rules: rules, Park: store})
			return err
		},
		"Park": func(pub message.Publisher) error {
			_, err := redrive.NewHandler(tracking(t, new(natsgo.Conn), &wmnats.NATSMarshaler{}, false), redrive.HandlerConfig{Rules: rules, Park: pub})
			return err
		},
		"redrive.Drain": func(pub message.Publisher) error {
			_, err := redrive.Drain(ctx, store, pub, redrive.DrainConfig{Rules: rules})
			return err
		},
		"campaigns.NewWorker": func(pub message.Publisher) error {
			_, err := campaigns.NewWorker(all, pub, campaigns.WorkerConfig{})
			return err
		},
	}
	headers := tracking(t, new(natsgo.Conn), &wmnats.NATSMarshaler{}, true)
	transformed := testkit.Must(message.MessageTransformPublisherDecorator(func(*message.Message) {})(headers))
	core := testkit.Must(wmnats.NewPublisherWithNatsConn(new(natsgo.Conn), wmnats.PublisherPublishConfig{
		Marshaler: wmnats.GobMarshaler{}, SubjectCalculator: wmnats.DefaultSubjectCalculator, JetStream: wmnats.JetStreamConfig{Disabled: true},
	}, nil))
	const ids, other = "has JetStreamConfig.TrackMsgID", "has PublisherConfig.TrackMessageID"
	for name, row := range map[string]struct {
		pub     message.Publisher
		refusal string
	}{
		"tracks":              {headers, ids},
		"decorated":           {transformed, ids},
		"embedded by pointer": {struct{ *wmnats.Publisher }{headers}, ids},
		"jetstream tracks":    {trackingJS(t, true), other},
		"decorated jetstream": {testkit.Must(message.MessageTransformPublisherDecorator(func(*message.Message) {})(trackingJS(t, true))), other},
		"jetstream":           {trackingJS(t, false), ""},
		"does not track":      {tracking(t, new(natsgo.Conn), &wmnats.NATSMarshaler{}, false), ""},
		"Gob has no header":   {tracking(t, new(natsgo.Conn), wmnats.GobMarshaler{}, true), ""},
		"known better":        {knownBetter{headers}, ""},
		"confirms nothing":    {core, "leave Disabled out"},
	} {
		for part, construct := range parts {
			err := construct(row.pub)
			switch {
			case row.refusal == "" && err != nil:
				t.Errorf("%s refuses one that %s: %v", part, name, err)
			case row.refusal != "" && (err == nil || !strings.Contains(err.Error(), row.refusal)):
				t.Errorf("%s takes one that %s: %v", part, name, err)
			}
		}
	}
}

// knownBetter says that the ids differ, which nothing else can know.
type knownBetter struct{ message.Publisher }

func (knownBetter) Deduplicates() bool { return false }

// Fact: a NATS server takes a message with an id that it had, confirms it, and delivers it to no subscriber. It runs
// before the parallel tests, which restart the server.
func TestFactNATSDropsWhatComesAgain(t *testing.T) {
	b := natsBroker{services.NATS(t), &wmnats.NATSMarshaler{}}
	for name, track := range map[string]bool{"tracked": true, "not tracked": false} {
		t.Run(name, func(t *testing.T) {
			conn := testkit.Must(natsgo.Connect(b.url))
			defer conn.Close()
			topic := "again-" + watermill.NewShortUUID()
			b.createStream(t, topic)
			pub := tracking(t, conn, &wmnats.NATSMarshaler{}, track)
			for _, id := range []string{"a", "a", "end"} {
				testkit.NoError(t, pub.Publish(topic, message.NewMessage(id, nil)))
			}
			ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
			defer cancel()
			messages := testkit.Must(b.subscriber(t, topic, b.url).Subscribe(ctx, topic))
			count := 0
			for msg := range messages {
				msg.Ack()
				if msg.UUID == "end" {
					break
				}
				count++
			}
			if want := map[bool]int{true: 1, false: 2}[track]; count != want {
				t.Errorf("delivered %d times, want %d", count, want)
			}
		})
	}
}
