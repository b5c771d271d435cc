package wmamqp_test

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/naming"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/pubsub/wmamqp"
)

const directReplyTo = "amq.rabbitmq.reply-to"

// hostile are messages whose properties, headers or metadata a broker, the client or a frame has no place for. Each is
// as our subscriber, or that of another broker, hands it to a handler.
func hostile(t testing.TB) map[string]*message.Message {
	from := func(d amqp091.Delivery) *message.Message {
		d.Acknowledger, d.ConsumerTag, d.MessageId, d.Body = nil, "c", "m", []byte("body")
		return read(t, wmamqp.Marshaler{}, d)
	}
	with := func(metadata ...string) *message.Message {
		msg := message.NewMessage("m", []byte("body"))
		for i := 0; i < len(metadata); i += 2 {
			msg.Metadata[metadata[i]] = metadata[i+1]
		}
		return msg
	}
	full := strings.Repeat("p", 255)
	extreme := everyType()
	var deep any = "deep"
	for range 250 {
		deep = amqp091.Table{"t": []any{deep}}
	}
	maps.Copy(extreme, amqp091.Table{
		"": "no name", full: "long name", "nul\x00\r\n": "\x00", "deep": deep, "nan": math.NaN(), "inf": math.Inf(-1), "old": time.Unix(-1<<40, 0),
		"far": time.Unix(1<<60, 0), "decimal": amqp091.Decimal{Scale: 255, Value: math.MinInt32}, "least": int64(math.MinInt64), "none": []any{},
		"x-death": "not a table", "x-first-death-queue": int8(1), "x-delivery-count": "many", "expiration": "0", "x-expires": int32(1), "x-message-ttl": int32(0),
	})
	messages := map[string]*message.Message{
		"direct reply-to":  from(amqp091.Delivery{ReplyTo: directReplyTo, Headers: amqp091.Table{"n": int32(1)}}),
		"full properties":  from(amqp091.Delivery{ContentType: full, ContentEncoding: full, CorrelationId: full, ReplyTo: full, Type: full, AppId: full, Priority: 255, Timestamp: time.Unix(-5, 0)}),
		"extreme headers":  from(amqp091.Delivery{Headers: extreme}),
		"another's user":   from(amqp091.Delivery{UserId: "somebody", Expiration: "soon"}),
		"routes":           with("CC", "elsewhere", "BCC", "elsewhere", "cc", "elsewhere"),
		"long names":       with(strings.Repeat("n", 256), "v", strings.Repeat("x", 5000), "w", "x-spillway-literal-"+strings.Repeat("n", 250), ""),
		"literal names":    with(strings.Repeat("x-spillway-literal-", 13)+"CC", "v"),
		"large":            with("big", strings.Repeat("\x00\xff", 100<<10)),
		"many":             with(),
		"id":               message.NewMessage(strings.Repeat("i", 200<<10), []byte("body")),
		"more than a text": with("_watermill_message_uuid", "forged", "x-spillway-long-names", "forged"),
	}
	for i := range 20_000 {
		messages["many"].Metadata[fmt.Sprint("key-", i)] = "v"
	}
	random := rand.New(rand.NewPCG(1, 2))
	noise := make([]byte, 130_000)
	for i := range noise {
		noise[i] = byte(' ' + random.IntN(90))
	}
	messages["nearly a frame, at random"] = with("noise", string(noise))
	for _, left := range []int{0, 100, 500, 3000} { // of a frame
		messages[fmt.Sprintf("all but %d bytes", left)] = with("big", strings.Repeat("x", 128<<10-left-80))
	}
	return messages
}

// Feature D4, promise P1: there is no message whose letter cannot be placed, without a fallback, at the first delivery.
func TestLetterOfAnything(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	topic := b.topic()
	dead := b.publisher()
	testkit.NoError(t, dead.InitializeTopics(topic+".dlq"))
	queue := lettersOf(dead, topic)
	for name, msg := range hostile(t) {
		t.Run(name, func(t *testing.T) {
			err := queue.Place(msg.Copy(), errors.New("failed"))
			testkit.Require(t, err == nil, "%.500v", err)
			d := b.get(topic + ".dlq")
			letter := testkit.Must(poison.Decode(read(t, wmamqp.Marshaler{}, d)))
			if d.Expiration != "" || d.UserId != "" || d.DeliveryMode != amqp091.Persistent || string(d.Body) != string(msg.Payload) {
				t.Errorf("expiration %q, user %q, mode %d, body %q", d.Expiration, d.UserId, d.DeliveryMode, d.Body)
			}
			got, want := letter.Original.Metadata, maps.Clone(msg.Metadata)
			if raw := d.Headers["x-original-metadata-dropped"]; raw != nil {
				t.Log("without metadata: ", raw)
				return
			}
			delete(want, wmamqp.KeyHeaders)
			for key, value := range want {
				testkit.Check(t, key == "x-delivery-count" || got[key] == value,
					"%.40q is %.40q, want %.40q", key, got[key], value)
			}
			testkit.Check(t, letter.Original.UUID == msg.UUID, "id %.40q", letter.Original.UUID)
		})
	}
	testkit.Check(t, b.ready(topic+".dlq") == 0, "there are more letters than messages")
}

// Promise P2: what cannot be published as a property is metadata in the letter and after a redrive, from the
// dead-letter queue as from a store that kept the message as it was; the properties beside it are restored.
func TestDirectReplyToIsKept(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	p, topic := b.publisher(), b.queue()
	msg := read(t, wmamqp.Marshaler{}, amqp091.Delivery{ConsumerTag: "c", MessageId: "m", ReplyTo: directReplyTo, CorrelationId: "corr"})
	for range 2 { // of the store, and of what came back
		testkit.NoError(t, p.Publish(topic, msg))
		d := b.get(topic)
		if d.ReplyTo != "" || d.CorrelationId != "corr" || d.Headers["x-amqp-kept-reply-to"] != directReplyTo {
			t.Errorf("reply-to %q, correlation id %q, headers %v", d.ReplyTo, d.CorrelationId, d.Headers)
		}
		msg = read(t, wmamqp.Marshaler{}, d)
	}
}

// rude is an application's marshaler that sets what the broker refuses, or what a letter must not have.
type rude struct {
	wmamqp.Marshaler
	change func(*amqp091.Publishing)
}

func (r rude) Marshal(msg *message.Message) (amqp091.Publishing, error) {
	p, err := r.Marshaler.Marshal(msg)
	if err == nil && len(msg.Metadata) > 0 {
		r.change(&p)
	}
	return p, err
}

// Feature D4: a letter is placed whatever an application's marshaler does to it, and neither expires nor goes
// elsewhere. A live message with the same is refused with an error that says so.
func TestLetterOfRudeMarshaler(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	topic, elsewhere := b.topic(), b.queue()
	type publishing = amqp091.Publishing
	for name, row := range map[string]struct {
		change  func(*publishing)
		refused bool // as a live message
	}{
		"user":       {func(p *publishing) { p.UserId = "somebody" }, true},
		"reply-to":   {func(p *publishing) { p.ReplyTo = directReplyTo }, true},
		"expiration": {func(p *publishing) { p.Expiration = "soon" }, true},
		"expires":    {func(p *publishing) { p.Expiration = "1" }, false},
		"transient":  {func(p *publishing) { p.DeliveryMode = amqp091.Transient }, false},
		"CC":         {func(p *publishing) { p.Headers["CC"] = elsewhere }, true},
		"copies":     {func(p *publishing) { p.Headers["BCC"] = []any{elsewhere} }, false},
	} {
		p := b.publisher(func(c *wmamqp.PublisherConfig) { c.AMQP.Marshaler = rude{change: row.change} })
		testkit.NoError(t, p.InitializeTopics(topic+".dlq"))
		live := message.NewMessage("live", nil)
		live.Metadata["k"] = "v"
		if err := p.Publish(elsewhere, live); errors.Is(err, classify.ErrRefused) != row.refused || !row.refused && err != nil {
			t.Errorf("%s: live: %v", name, err)
		}
		b.must(func(c *amqp091.Channel) error { _, err := c.QueuePurge(elsewhere, false); return err })
		testkit.NoError(t, lettersOf(p, topic).Place(message.NewMessage("m", []byte("body")), classify.Permanent(errors.New("failed"))))
		d := b.get(topic + ".dlq")
		testkit.Check(t, d.Expiration == "" && d.DeliveryMode == amqp091.Persistent && string(d.Body) == "body" &&
			d.Headers[poison.KeyFailureClass] == "permanent" && b.ready(elsewhere) == 0,
			"%s: expiration %q, mode %d, body %q, headers %v", name, d.Expiration, d.DeliveryMode, d.Body, d.Headers)
	}
}

// lettersOf is a queue that tries once to place the letters of topic.
func lettersOf(p message.Publisher, topic string) *poison.Queue {
	return testkit.Must(poison.NewQueue(p, poison.QueueConfig{
		PublishAttempts: 1, Naming: naming.Scheme{DeadLetter: topic + ".dlq"},
	}))
}

// Bad input: what an application's marshaler does to every message, and no broker takes, is an error that names it, and
// not tried again: nothing of the letter could help, and its form is the application's.
func TestMarshalerThatNoBrokerTakes(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	queue := b.queue()
	for want, change := range map[string]func(*amqp091.Publishing){
		"the type has 300 bytes": func(p *amqp091.Publishing) { p.Type = strings.Repeat("t", 300) },
		"the header name":        func(p *amqp091.Publishing) { p.Headers[strings.Repeat("h", 300)] = "v" },
		"struct":                 func(p *amqp091.Publishing) { p.Headers["h"] = struct{}{} },
	} {
		p := b.publisher(func(c *wmamqp.PublisherConfig) { c.AMQP.Marshaler = rude{change: change} })
		msg := message.NewMessage("m", nil)
		msg.Metadata[poison.KeyFailureClass] = "permanent"
		err := p.Publish(queue, msg)
		if says(t, err, want); !errors.Is(err, classify.ErrRefused) {
			t.Error(err)
		}
	}
}
