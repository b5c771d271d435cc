package privacy_test

import (
	"runtime/debug"
	"strings"
	"testing"
)

// What Text costs, by the kind of text: ns/KiB is the figure.
func BenchmarkText(b *testing.B) {
	stack := string(debug.Stack())
	for len(stack) < 16<<10 {
		stack += stack
	}
	for _, c := range []struct{ name, text string }{
		{"error", `charge order 1042: Post "https://pay.example/v1/charges": dial tcp 10.0.0.7:443: connect: connection refused`},
		{"secret", `connect: failed to connect to postgres://ops:hunter2@db.internal:5432/shop: password authentication failed`},
		{"stack", stack[:16<<10]},
		{"json", strings.Repeat(`{"id":1042,"name":"x","password":"hunter2","items":[1,2,3],"note":"a \"b\" c"},`, 50)},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(c.text)))
			for b.Loop() {
				_ = standard.Text(c.text)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(c.text))*1024, "ns/KiB")
		})
	}
}

func BenchmarkPayload(b *testing.B) {
	payload := []byte("[" + strings.TrimSuffix(strings.Repeat(`{"id":1042,"users":[{"name":"x"}],"password":"hunter2","items":[1,2,3],"note":"a \"b\" c"},`, 50), ",") + "]")
	r := redactorOf(b, "$[*].users[*].name")
	b.ReportAllocs()
	b.SetBytes(int64(len(payload)))
	for b.Loop() {
		_ = r.Payload(payload)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(payload))*1024, "ns/KiB")
}
