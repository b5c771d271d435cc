package crashlimit

import (
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/internal/testkit/databases"
)

// BenchmarkLimit is what the limit adds to a message: as long as nothing ended uncleanly, and while deliveries are
// marked.
func BenchmarkLimit(b *testing.B) {
	b.Run("quiet", func(b *testing.B) {
		l := newLimit(b, options{store: newFake()})
		testkit.NoError(b, l.start())
		bench(b, l.Middleware(succeed))
	})
	b.Run("nothing", func(b *testing.B) { bench(b, chain.Enter()(succeed)) })
	b.Run("broker", func(b *testing.B) {
		l := newLimit(b, options{Config: Config{Delivered: func(*message.Message) (int, bool) { return 0, false }}})
		bench(b, l.Middleware(succeed))
	})
	for _, d := range databases.All {
		b.Run("marking, "+d.Name, func(b *testing.B) {
			l := haunted(b, options{store: storeOn(b, d.Open(b, d.Create(b)))})
			bench(b, l.Middleware(succeed))
		})
	}
}

func bench(b *testing.B, h message.HandlerFunc) {
	msg := newMessage("id")
	b.ReportAllocs()
	for b.Loop() {
		testkit.Must(h(msg))
	}
}
