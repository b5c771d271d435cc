package jetstream

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats.go"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/naming"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive"
)

// others makes a consumer of another program, which gives up after two deliveries, and lets it refuse n messages.
func (s *site) others(n int) {
	s.Helper()
	testkit.Must(s.js.AddConsumer(Name(s.topic), &nats.ConsumerConfig{
		Durable: "warehouse", AckPolicy: nats.AckExplicitPolicy, AckWait: 30 * time.Second, MaxDeliver: 2,
	}))
	pull := testkit.Must(s.js.PullSubscribe(s.topic, "warehouse", nats.Bind(Name(s.topic), "warehouse")))
	for refused := 0; refused < 2*n; {
		batch, err := pull.Fetch(1, nats.MaxWait(testkit.Patience))
		testkit.NoError(s, err)
		for _, raw := range batch {
			testkit.NoError(s, raw.Nak())
			refused++
		}
	}
	go func() { _, _ = pull.Fetch(1, nats.MaxWait(testkit.Patience)) }() // the server gives up when it would deliver again
}

func (s *site) collect(scheme naming.Scheme) {
	s.Helper()
	dead := testkit.Must(NewPublisher(s.config, nil))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- Undelivered{Config: s.config, Topic: s.topic, Dead: dead, Naming: scheme}.Run(ctx)
	}()
	s.Cleanup(func() {
		cancel()
		testkit.NoError(s, <-ended)
		_ = dead.Close()
	})
}

// Features D7, V1: messages that another program's consumer gave up, before anything collected, become letters that say
// which consumer, how often and when, and are drained to their topic as their producer sent them. Advisories that any
// client of the server could have written make no letter, and hold up none.
func TestUndelivered(t *testing.T) {
	s, scheme := newSite(t), naming.Scheme{Style: naming.NATS}
	dead := scheme.DeadLetterTopic(naming.Source{Topic: s.topic})
	t.Cleanup(func() {
		for _, name := range []string{Name(s.topic) + "-undelivered", Name(dead), Name(dead) + "-parked", Name(dead) + "-quarantine"} {
			_ = s.js.DeleteStream(name)
		}
	})
	s.create()
	s.collect(scheme)
	testkit.Eventually(t, "the advisories are kept", func() bool {
		_, err := s.js.StreamInfo(Name(s.topic) + "-undelivered")
		return err == nil
	})
	conn := testkit.Must(nats.Connect(s.config.URL))
	defer conn.Close()
	forge := func(of string, data any) {
		body, isText := data.(string)
		if !isText {
			body = string(testkit.Must(json.Marshal(data)))
		}
		testkit.NoError(t, conn.Publish(advisories+of, []byte(body)))
	}
	honest := func(change func(map[string]any)) map[string]any {
		a := map[string]any{"type": "io.nats.jetstream.advisory.v1.max_deliver", "timestamp": time.Now(), "stream": Name(s.topic), "consumer": "warehouse", "stream_seq": 1, "deliveries": 2}
		change(a)
		return a
	}
	at := Name(s.topic) + ".warehouse"
	for _, data := range []any{
		"", "not JSON", fmt.Sprintf("%10000s", "{}"), "[]", `{"stream_seq":-1}`,
		honest(func(a map[string]any) { a["stream"] = "payments" }), honest(func(a map[string]any) { a["stream_seq"] = 0 }),
		honest(func(a map[string]any) { a["stream_seq"] = uint64(1) << 63 }), honest(func(a map[string]any) { a["deliveries"] = -1 }),
		honest(func(a map[string]any) { a["consumer"] = "another" }), honest(func(a map[string]any) { a["type"] = "other" }),
	} {
		forge(at, data)
	}
	begun := time.Now()
	pub := testkit.Must(NewPublisher(s.config, nil))
	defer func() { _ = pub.Close() }()
	for _, id := range []string{"a", "b"} {
		msg := message.NewMessage(id, []byte(id))
		msg.Metadata = message.Metadata{"tenant": "acme", poison.KeyOriginalTopic: "payments", "x-redrive-count": "1"}
		testkit.NoError(t, pub.Publish(s.topic, msg))
	}
	testkit.NoError(t, conn.Flush())
	s.others(2)

	letters := map[string]poison.Letter{}
	testkit.Eventually(t, "the letters", func() bool {
		info, err := s.js.StreamInfo(Name(dead))
		return err == nil && info.State.Msgs == 2
	})
	for seq := range uint64(2) {
		raw := testkit.Must(s.js.GetMsg(Name(dead), seq+1))
		l := testkit.Must(poison.Decode(testkit.Must(s.config.withDefaults().Marshaler.Unmarshal(&nats.Msg{Subject: dead, Data: raw.Data}))))
		letters[l.Original.UUID] = l
	}
	for id, offset := range map[string]string{"a": "1", "b": "2"} {
		l := letters[id]
		if o := l.Origin; o.Topic != s.topic || o.Offset != offset || o.ConsumerGroup != "warehouse" || o.MessageID != id || o.Timestamp.Before(begun.Add(-time.Minute)) {
			t.Errorf("%s: %+v", id, o)
		}
		if f := l.Failure; f.Reason != classify.ReasonMaxDeliveries || f.Attempts != 2 || f.LastFailedAt.Before(begun.Add(-time.Minute)) {
			t.Errorf("%s: %+v", id, f)
		}
		testkit.Check(t, len(l.Original.Metadata) == 1 && l.Redrive.Count == 1, "%s: %q, redriven %d times", id, l.Original.Metadata, l.Redrive.Count)
	}

	sub := testkit.Must(NewSubscriber(s.config, nil))
	defer func() { _ = sub.Close() }()
	report, err := redrive.DrainTopic(t.Context(), sub, pub, redrive.DrainTopicConfig{
		Rules: redrive.Rules{Allow: []string{s.topic}}, Park: pub, Topic: dead, Backlog: sub.Backlog,
	})
	testkit.Check(t, err == nil && report.Redriven == 2 && report.Taken == 2, "%+v, %v", report, err)
	_, messages := s.open()
	for _, id := range []string{"a", "b", "a", "b"} {
		msg := testkit.Receive(t, "a message", messages)
		testkit.Check(t, msg.UUID == id && string(msg.Payload) == id && msg.Metadata["tenant"] == "acme", "%s: %q of %q", msg.UUID, msg.Payload, msg.Metadata)
		msg.Ack()
	}
}

// Promise P1: a message that is given up while no process collects becomes a letter of the next one, once, also in a
// topic with the name of the consumer.
func TestUndeliveredMeanwhile(t *testing.T) {
	s, scheme := newSite(t), naming.Scheme{DeadLetter: "{topic}-{handler}-dlq"}
	dead := scheme.DeadLetterTopic(naming.Source{Topic: s.topic, Handler: "warehouse"})
	t.Cleanup(func() {
		for _, name := range []string{Name(s.topic) + "-undelivered", Name(dead)} {
			_ = s.js.DeleteStream(name)
		}
	})
	s.create()
	u := Undelivered{Config: s.config.withDefaults(), Topic: s.topic}
	testkit.NoError(t, testkit.Must(u.subscribe(s.js)).Unsubscribe()) // a collector that is gone again
	s.send("a")
	s.others(1)
	testkit.Eventually(t, "the advisory", func() bool {
		info, err := s.js.StreamInfo(Name(s.topic) + "-undelivered")
		return err == nil && info.State.Msgs == 1
	})
	s.collect(scheme)
	testkit.Eventually(t, "the letter", func() bool {
		info, err := s.js.StreamInfo(Name(dead))
		return err == nil && info.State.Msgs == 1
	})
	testkit.Eventually(t, "the advisory is acked", func() bool {
		info, err := s.js.ConsumerInfo(Name(s.topic)+"-undelivered", collector)
		return err == nil && info.NumPending == 0 && info.NumAckPending == 0
	})
	info := testkit.Must(s.js.StreamInfo(Name(dead)))
	testkit.Check(t, info.State.Msgs == 1, "%d letters", info.State.Msgs)
}
