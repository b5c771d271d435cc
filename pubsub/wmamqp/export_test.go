package wmamqp

// Apart publishes each message by itself, as if no other were published.
func Apart(p *Publisher) { p.together = nil }
