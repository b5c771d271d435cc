package poison

import (
	"strings"

	"github.com/watermill-spillway/spillway/internal/text/boundedtext"
)

// The headers that Kafka itself writes. Numbers are decimal text. Kafka Streams (KIP-1034, as of 4.2) keeps the headers
// of the record that failed, and adds its own. A share group (KIP-1191, as of 4.4) keeps none.
const (
	streamsTopic     = "__streams.errors.topic"     // null where no record failed, but a punctuation
	streamsException = "__streams.errors.exception" // the first versions wrote the message behind it
	shareTopic       = "__dlq.errors.topic"
)

func (l *Letter) readStreams(r reader, repeated headers) {
	const prefix = "__streams.errors."
	l.readPlace(r, repeated, prefix)
	l.Failure.Type, _, _ = strings.Cut(r.text(streamsException), ": ")
	l.Failure.Description = strings.TrimSpace(r.text(prefix + "message"))
	l.readJavaStack(r, prefix+"stacktrace")
}

// readShare leaves out the place of a record that the broker did not copy, which is its default: nothing is there to
// redrive, and an empty message would be a tombstone.
func (l *Letter) readShare(r reader, repeated headers) {
	const prefix = "__dlq.errors."
	at, n := l.readPlace(r, repeated, prefix)
	if l.Origin.ConsumerGroup == "" && at >= 0 {
		l.Origin.ConsumerGroup = repeated.nth(r, prefix+"group", at, n)
	}
	l.Failure.Attempts = boundedtext.Count(r.identity(prefix + "delivery.count"))
	l.Failure.Description = strings.TrimSpace(r.text(prefix + "message"))
	if o := &l.Origin; len(l.Original.Payload) == 0 && len(o.Key) == 0 && o.Topic != "" {
		l.Failure.Description = boundedtext.Text(l.Failure.Description+" The broker kept no copy: the record is in "+
			o.Topic+", partition "+o.Partition+", offset "+o.Offset+
			". Set errors.deadletterqueue.copy.record.enable for the group.", MaxAdded)
		o.Topic, o.Partition, o.Offset = "", "", ""
	}
}

// readPlace reads where a record stood, and returns which of n places that is.
func (l *Letter) readPlace(r reader, repeated headers, prefix string) (at, n int) {
	topics := repeated.of(r, prefix+"topic")
	at, n = firstHop(topics), len(topics)
	if at < 0 || l.Origin.Topic != "" {
		return -1, n
	}
	l.Origin.Topic = topics[at]
	l.Origin.Partition = decimal(parse(repeated.nth(r, prefix+"partition", at, n), 32))
	l.Origin.Offset = decimal(parse(repeated.nth(r, prefix+"offset", at, n), 64))
	return at, n
}
