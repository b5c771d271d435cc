package poison

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/attempts"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/naming"
)

func died(deaths string) *message.Message {
	msg := message.NewMessage("id", []byte("{}"))
	msg.Metadata = message.Metadata{keyDeaths: deaths, "x-first-death-queue": "payments", "tenant": "acme"}
	return msg
}

const onceRejected = `{"count":2,"exchange":"shop","queue":"orders","reason":"rejected","routing-keys":["placed"],` +
	`"time":"2023-11-14T22:13:20Z"}`

// Features D7, V2: of several deaths the first that can be believed is the origin: that of the latest queue, or of one
// whose dead letters that queue keeps by its name. A producer can write all entries but the latest.
func TestDeaths(t *testing.T) {
	at, bare := time.Unix(1700000000, 0).UTC(), Origin{Topic: "orders", ConsumerGroup: "orders"}
	shop := Origin{Topic: "orders", ConsumerGroup: "orders", Exchange: "shop", RoutingKey: "placed"}
	of := func(queue, reason string, attempts int, first, last time.Time) Failure {
		return Failure{Reason: strings.ToLower(reason), Attempts: attempts, FirstFailedAt: first, LastFailedAt: last,
			Description: "RabbitMQ dead-lettered it from queue " + queue + ": " + reason}
	}
	var none time.Time
	for name, row := range map[string]struct {
		deaths string
		origin Origin
		want   Failure
	}{
		"rejected": {onceRejected, shop, of("orders", "rejected", 2, at, none)},
		"expired": {`{"count":1,"exchange":"","queue":"orders","reason":"expired","time":"2023-11-14T22:13:20Z"}`,
			bare, of("orders", "expired", 0, at, at)},
		"from its dead letters": {`{"count":1,"queue":"orders.dlq","reason":"maxlen"},` + onceRejected,
			shop, of("orders.dlq", "maxlen", 2, at, none)},
		"forged behind": {onceRejected + `,{"count":9,"queue":"payments","reason":"rejected","time":"1999-01-01T00:00:00Z"}`,
			shop, of("orders", "rejected", 2, at, none)},
		"wrong types behind": {`{"count":"many","exchange":[],"queue":"orders","reason":"delivery_limit",` +
			`"routing-keys":{},"time":1},7,{"queue":{"a":1}},[[]],null,` + onceRejected,
			bare, of("orders", "delivery_limit", 0, none, none)},
		"impossible": {`{"count":-1,"queue":"orders","reason":"REJECTED","time":"yesterday","routing-keys":["` +
			strings.Repeat("k", 300) + `"]}`, bare, of("orders", "REJECTED", 0, none, none)},
	} {
		l, err := Decode(died("[" + row.deaths + "]"))
		testkit.Require(t, err == nil, "%s: %v", name, err)
		own := l.Original.Metadata
		testkit.Check(t, len(own) == 1 && own["tenant"] == "acme", "%s: left on the original: %q", name, own)
		l.Original = nil
		want := Letter{Origin: row.origin, Failure: row.want}
		testkit.Check(t, equalLetters(l, want), "%s: read\n%+v, want\n%+v", name, l, want)
	}
	for name, deaths := range map[string]string{
		"text": "not a table", "empty": "", "no death": "[]", "no table": `["orders"]`, "cut": "[" + onceRejected,
		"no queue": `[{"reason":"rejected"}]`, "no reason": `[{"queue":"orders"}]`, "a number": `[{"queue":7,"reason":"rejected"}]`,
		"long":     `[{"queue":"` + strings.Repeat("q", 256) + `","reason":"rejected"}]`,
		"too much": "[" + onceRejected + strings.Repeat(" ", maxDeaths) + "]", "deep": strings.Repeat("[", 20_000),
	} {
		_, err := Decode(died(deaths))
		testkit.Check(t, errors.Is(err, ErrNotLetter), "%s: %v", name, err)
		testkit.Check(t, len(Read(died(deaths)).Original.Metadata) == 3, "%s: something is taken off", name)
	}
}

// Promise P2: what came through a queue for delays is live, and keeps its x-death in its letter and when it is
// redriven. On a topic of dead letters it is the letter of another, also for the handler there that fails.
func TestDeathsOfLiveMessages(t *testing.T) {
	queue := newQueue(t, &sink{}, QueueConfig{})
	failure := &classify.Failure{}
	attempts.Add(failure, errors.New("no"), classify.Verdict{Class: classify.ClassPermanent}, longAgo)
	msg := died("[" + onceRejected + "]")
	testkit.Check(t, !isLetter(msg) && !queue.isDeadLetter(msg, "invoices") && len(producerMetadata(msg.Metadata)) == 3, "it is no letter")
	live := queue.letter(msg.Copy(), failure, naming.Source{Topic: "invoices", Handler: "billing"}, false)
	back := testkit.Must(Decode(live.Encode()))
	testkit.Check(t, back.Origin.Topic == "invoices" && back.Failure.Description == "no" && len(back.Original.Metadata) == 3,
		"%+v of %q", back, back.Original.Metadata)
	dead := queue.letter(msg.Copy(), failure, naming.Source{Topic: "orders.dlq", Handler: "billing"}, queue.isDeadLetter(msg, "orders.dlq"))
	testkit.Check(t, dead.Origin.Topic == "orders" && dead.Failure.Description == "no" && len(dead.Original.Metadata) == 1,
		"%+v of %q", dead, dead.Original.Metadata)
}
