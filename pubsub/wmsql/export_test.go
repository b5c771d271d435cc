package wmsql

import wsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"

// NextQuery is what s asks for the first n messages of topic with.
func NextQuery(s *Subscriber, topic string, n int) wsql.Query {
	return s.source.next(topic, position{}, n)
}
