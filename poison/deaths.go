package poison

import (
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/text/boundedtext"
)

// RabbitMQ's x-death is a list of tables, one for each queue and reason, the latest death first. Package wmamqp makes
// JSON of it. RabbitMQ writes it too on what expired in a queue for delays and is live again. So x-death makes a letter
// only where letters are read, and only without another failure.
const (
	keyDeaths  = "x-death"
	maxDeaths  = 64 << 10 // bytes
	maxRoute   = 255      // bytes of AMQP's names
	atRejected = "rejected"
)

// death is what RabbitMQ says of the deaths of a message in one queue, for one reason.
type death struct {
	queue, reason, exchange, routingKey string
	count                               int
	at                                  time.Time // of the first of them, to the second
}

// deathsOf returns the deaths of a message, the first one first. The broker wrote the latest. A producer can write
// others: what is no entry ends the list, and all before it.
func deathsOf(metadata message.Metadata) []death {
	encoded, ok := metadata[keyDeaths]
	if !ok || len(encoded) > maxDeaths {
		return nil
	}
	var entries []map[string]any
	var mistyped *json.UnmarshalTypeError // an element that is no table, and is nil then
	if err := json.Unmarshal([]byte(encoded), &entries); err != nil && !errors.As(err, &mistyped) {
		return nil
	}
	deaths := make([]death, 0, len(entries))
	for _, entry := range entries {
		d := death{queue: nameIn(entry["queue"]), reason: nameIn(entry["reason"]), exchange: nameIn(entry["exchange"])}
		if d.queue == "" || d.reason == "" {
			break
		}
		if n, isNumber := entry["count"].(float64); isNumber && n >= 0 && n <= 1_000_000 {
			d.count = int(n)
		}
		if keys, _ := entry["routing-keys"].([]any); len(keys) > 0 {
			d.routingKey = nameIn(keys[0])
		}
		if at, isText := entry["time"].(string); isText {
			d.at = boundedtext.Time(at)
		}
		deaths = append(deaths, d)
	}
	for i, j := 0, len(deaths)-1; i < j; i, j = i+1, j-1 {
		deaths[i], deaths[j] = deaths[j], deaths[i]
	}
	return deaths
}

func nameIn(value any) string {
	if name, _ := value.(string); len(name) <= maxRoute {
		return name
	}
	return ""
}

// readDeaths takes the queue of the first death that can be believed for the topic, and the latest death for the
// failure. The x-first-death- headers are not read: a producer can write them with an x-death of its own.
func (l *Letter) readDeaths(deaths []death) {
	if len(deaths) == 0 {
		return
	}
	queues := make([]string, len(deaths))
	for i, d := range deaths {
		queues[i] = d.queue
	}
	origin, last := deaths[firstHop(queues)], deaths[len(deaths)-1]
	if l.Origin.Topic == "" {
		l.Origin.Topic = origin.queue
		l.Origin.ConsumerGroup, l.Origin.Exchange, l.Origin.RoutingKey = origin.queue, origin.exchange, origin.routingKey
	}
	l.Failure.Reason = boundedtext.Text(strings.ToLower(last.reason), 128)
	l.Failure.Description = boundedtext.Text("RabbitMQ dead-lettered it from queue "+last.queue+": "+last.reason,
		MaxAdded)
	l.Failure.FirstFailedAt = origin.at
	if last.count <= 1 { // of later deaths in the same way the broker keeps the first time
		l.Failure.LastFailedAt = last.at
	}
	for _, d := range deaths {
		if d.queue == origin.queue && d.reason == atRejected {
			l.Failure.Attempts = d.count
		}
	}
}
