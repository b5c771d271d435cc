package wmkafka

import (
	"slices"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"github.com/watermill-spillway/spillway/internal/testkit"
)

// Promise P1: whatever is placed and confirmed, in whatever order, and whatever gaps the offsets have: the position is
// never above a message that is not done, and never goes back; it has no gap for good; what is open is bounded; and
// messages of one key take turns.
func TestMarks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const maxSize = 10
		m := marks{most: rapid.IntRange(1, 8).Draw(t, "most"), mostBytes: rapid.IntRange(1, 40).Draw(t, "bytes"), ahead: rapid.IntRange(1, 20).Draw(t, "ahead")}
		var open []*placement
		keys := map[*placement]string{}
		next, last, position := int64(rapid.IntRange(0, 100).Draw(t, "first")), int64(-1), int64(0)
		beyond := 0 // messages taken since the first open one
		check := func() {
			got := m.position()
			switch {
			case got < position:
				t.Fatalf("the position went back from %d to %d", position, got)
			case len(open) > 0 && got > open[0].offset:
				t.Fatalf("the position is %d, and %d is being placed", got, open[0].offset)
			case len(open) > 0 && got < open[0].offset && got <= last:
				t.Fatalf("the position is %d, and %d is the first that is being placed", got, open[0].offset)
			case len(open) == 0 && last >= 0 && got != last+1:
				t.Fatalf("the position is %d, and all is done up to %d", got, last)
			}
			size := 0
			for i, p := range open {
				size += p.size
				ahead := slices.ContainsFunc(open[:i], func(other *placement) bool { return keys[other] != "" && keys[other] == keys[p] })
				testkit.Require(t, (p.turn() != nil) == ahead, "%d waits for its turn, or not", p.offset)
			}
			full := len(open) >= m.most || size >= m.mostBytes || len(open) > 0 && beyond >= m.ahead
			testkit.Require(t, m.full() == full,
				"full: %t, with %d messages of %d bytes, %d beyond the first", !full, len(open), size, beyond)
			testkit.Require(t, len(m.open) <= m.ahead+1 && m.number == len(open) && m.bytes == size && len(m.latest) <= len(open),
				"it keeps %d messages, counts %d of %d bytes, and knows %d keys; %d are open", len(m.open), m.number, m.bytes, len(m.latest), len(open))
			position = got
		}
		confirm := func(i int) {
			p := open[i]
			turn := p.after
			m.confirm(p)
			if turn != nil {
				<-turn
			}
			open = slices.Delete(open, i, i+1)
			if len(open) == 0 || i == 0 {
				beyond = 0
				if len(open) > 0 {
					beyond = m.taken - open[0].taken
				}
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"": func(*rapid.T) { check() },
			"take": func(t *rapid.T) {
				if m.full() {
					t.Skip("the subscriber waits")
				}
				next += int64(rapid.SampledFrom([]int{1, 1, 1, 2, 1000}).Draw(t, "gap"))
				last = next
				m.take()
				if len(open) > 0 {
					beyond++
				}
				if rapid.Bool().Draw(t, "fails") {
					var key []byte
					if n := rapid.IntRange(0, 3).Draw(t, "key"); n > 0 {
						key = []byte(strconv.Itoa(n))
					}
					p := m.place(next, key, rapid.IntRange(0, maxSize).Draw(t, "size"))
					open, keys[p] = append(open, p), string(key)
					return
				}
				m.done(next)
			},
			"confirm": func(t *rapid.T) {
				if len(open) == 0 {
					t.Skip("none is open")
				}
				confirm(rapid.IntRange(0, len(open)-1).Draw(t, "which"))
			},
		})
		for len(open) > 0 {
			confirm(len(open) - 1)
		}
		check()
	})
}
