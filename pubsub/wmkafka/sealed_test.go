package wmkafka

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/naming"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive"
	"github.com/watermill-spillway/spillway/seal"
	"github.com/watermill-spillway/spillway/settings"
)

func sealer(t testing.TB, key string) *seal.Sealer {
	t.Helper()
	keys, err := seal.ParseKeyring(testkit.Keyring(key))
	testkit.NoError(t, err)
	s, err := seal.New(keys)
	testkit.NoError(t, err)
	return s
}

// Feature D14: in the dead-letter topic nothing of a sealed message is clear. A drain without its key parks it as it
// is. A drain with the key redrives it byte for byte.
func TestSealed(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	dead := c.topic + ".dlq"
	parked := naming.Scheme{}.ParkedTopic(dead)
	c.create(dead, 1, nil)
	c.deleteLater(parked, naming.Scheme{}.QuarantineTopic(dead)) // which the drain makes
	const secret, person = "card 4111111111111111 \x00\xff", "Ada Lovelace"
	pub := c.publisher(PublisherConfig{})
	queue, err := poison.NewQueue(pub, poison.QueueConfig{Shared: settings.Shared{Seal: sealer(t, "first")}, Origin: Origin})
	testkit.NoError(t, err)
	redriven := make(chan struct{})
	c.run(c.subscriber(SubscriberConfig{}), nil, func(r *message.Router) { r.AddMiddleware(queue.Middleware) }, func(msg *message.Message) ([]*message.Message, error) {
		if msg.Metadata[poison.KeyRedriveCount] == "" {
			return nil, classify.Permanent(errors.New("failed"))
		}
		close(redriven)
		return nil, nil
	})
	var why error // the last letter is parked
	hooks := redrive.Hooks{OnParked: func(_ context.Context, _ poison.Letter, err error) { why = err }}
	drain := func(key string) redrive.Report {
		t.Helper()
		sub := c.subscriber(SubscriberConfig{}, c.group+"-drain")
		c.eventually("the letter is in the topic, and the group has a coordinator", func() bool {
			n, err := sub.Backlog(t.Context(), dead)
			return err == nil && n == 1
		})
		report, err := redrive.DrainTopic(t.Context(), sub, pub, redrive.DrainTopicConfig{
			Rules: redrive.Rules{Allow: []string{c.topic}, Shared: settings.Shared{Seal: sealer(t, key)}, Hooks: hooks}, Park: pub, Topic: dead, Backlog: sub.Backlog, IdleAfter: patience,
		})
		testkit.Require(t, err == nil && report.Taken == 1, "%+v, %v", report, err)
		return report
	}

	c.produce(&sarama.ProducerMessage{Key: sarama.StringEncoder("key-7"), Value: sarama.StringEncoder(secret), Headers: []sarama.RecordHeader{
		header(kafka.UUIDHeaderKey, "id-1"), header("customer", person),
	}})
	c.eventually("the letter is in the topic", func() bool { return len(c.records(dead, 1)) == 1 })
	raw := c.records(dead, 1)[0]
	all := string(raw.Value)
	for _, h := range raw.Headers {
		all += fmt.Sprintf(" %s=%s", h.Key, h.Value)
	}
	if strings.Contains(all, "4111111111111111") || strings.Contains(all, person) || !bytes.Contains(raw.Value, []byte("first")) {
		t.Errorf("the dead-letter topic shows %q", all)
	}
	if report := drain("lost"); report.Sealed != 1 || report.Redriven != 0 || !errors.Is(why, seal.ErrUnknownKey) || !strings.Contains(why.Error(), `"first"`) {
		t.Errorf("without the key: %+v, %v", report, why)
	}
	aside := c.records(parked, 1)
	testkit.Require(t, len(aside) == 1 && bytes.Equal(aside[0].Value, raw.Value), "%d letters are parked", len(aside))
	c.produce(produced(dead, aside[0]))
	if report := drain("first"); report.Redriven != 1 || report.Sealed != 0 {
		t.Errorf("with the key: %+v", report)
	}
	c.ends("it is handled again", func() { <-redriven })
	arrived := c.records(c.topic, 1)
	testkit.Require(t, len(arrived) == 2, "%d records, want the first and the redriven one", len(arrived))
	own := map[string]string{}
	for _, h := range arrived[1].Headers {
		own[string(h.Key)] = string(h.Value)
	}
	if string(arrived[1].Key) != "key-7" || string(arrived[1].Value) != secret || own["customer"] != person || own[kafka.UUIDHeaderKey] != "id-1" || own[poison.KeySealed] != "" {
		t.Errorf("redriven: %q %q %q", arrived[1].Key, arrived[1].Value, own)
	}
}
