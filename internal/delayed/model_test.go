package delayed

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/internal/testkit/databases"
)

// held is what a relay of the model has in hand, and row what is kept.
type held struct {
	token string
	seqs  []int64
}

type row struct {
	id    string
	due   time.Duration // on the model's clock, that begins at 0
	ready time.Duration
	token string
}

// The store does what a list of rows does, whatever is put, taken, given back, forgotten, and whenever leases end. The
// model's clock moves by hand: the rows move instead.
func TestModel(t *testing.T) {
	databases.Each(t, func(t *testing.T, d databases.Database, address string) {
		s := newStore(t, d, address)
		const second = time.Second
		outer := t
		rapid.Check(t, func(t *rapid.T) {
			testkit.Must(s.db.DB().Exec(`DELETE FROM spillway_delayed`))
			var now time.Duration
			rows := map[string]*row{}
			byToken := map[string][]string{}
			hands := []held{}
			next := 0
			fatal := func(err error) { testkit.NoError(t, err) }
			hand := func() (held, bool) {
				if len(hands) == 0 {
					return held{}, false
				}
				return hands[rapid.IntRange(0, len(hands)-1).Draw(t, "hand")], true
			}
			mine := func(h held, what func(*row)) {
				for _, id := range byToken[h.token] {
					if r := rows[id]; r != nil && r.token == h.token {
						what(r)
					}
				}
			}
			t.Repeat(map[string]func(*rapid.T){
				"put": func(t *rapid.T) {
					after := time.Duration(rapid.IntRange(-1, 5).Draw(t, "after")) * 10 * second
					id := fmt.Sprint(next)
					next++
					fatal(s.Put(t.Context(), "orders", newMessage(id), after))
					rows[id] = &row{id: id, due: now + max(0, after), ready: now + max(0, after)}
				},
				"wait": func(t *rapid.T) {
					by := time.Duration(rapid.IntRange(1, 3).Draw(t, "by")) * 10 * second
					now += by
					testkit.Must(s.db.DB().Exec(fmt.Sprintf(
						`UPDATE spillway_delayed SET due_at = due_at - %[1]d, ready_at = ready_at - %[1]d`,
						by.Microseconds())))
				},
				"take": func(t *rapid.T) {
					time.Sleep(s.dialect.tick) // of what was put just now
					n := rapid.IntRange(1, 4).Draw(t, "n")
					b, err := s.take(t.Context(), n, 25*second, front)
					fatal(err)
					free := 0
					for _, r := range rows {
						if r.ready <= now {
							free++
						}
					}
					testkit.Require(t, len(b.rows) == min(n, free),
						"%d are taken, of %d that are free, at most %d", len(b.rows), free, n)
					last := time.Duration(-1 << 62)
					for _, taken := range b.rows {
						r := rows[taken.msg.UUID]
						testkit.Require(t, r != nil && r.ready <= now && r.due >= last, "%s is taken: %+v",
							taken.msg.UUID, r)
						last, r.token, r.ready = r.due, b.token, now+25*second
						byToken[b.token] = append(byToken[b.token], r.id)
					}
					hands = append(hands, held{b.token, seqsOf(b.rows)})
				},
				"remove": func(t *rapid.T) {
					if h, ok := hand(); ok {
						fatal(s.remove(t.Context(), h.token, h.seqs))
						mine(h, func(r *row) { delete(rows, r.id) })
					}
				},
				"release": func(t *rapid.T) {
					if h, ok := hand(); ok {
						fatal(s.release(t.Context(), h.token, h.seqs))
						mine(h, func(r *row) { r.token, r.ready = "", r.due })
					}
				},
				"postpone": func(t *rapid.T) {
					if h, ok := hand(); ok {
						fatal(s.postpone(t.Context(), h.token, h.seqs, 15*second, 1))
						mine(h, func(r *row) { r.token, r.ready = "", now+15*second })
					}
				},
				"renew": func(t *rapid.T) {
					if h, ok := hand(); ok {
						all, err := s.renew(t.Context(), h.token, h.seqs, 35*second)
						fatal(err)
						n := 0
						mine(h, func(r *row) { n++; r.ready = now + 35*second })
						testkit.Require(t, all == (n == len(h.seqs)), "all: %v, %d of %d", all, n, len(h.seqs))
					}
				},
				"": func(t *rapid.T) {
					n := kept(outer, s)
					testkit.Require(t, n == len(rows), "%d are kept, want %d", n, len(rows))
				},
			})
		})
	})
}
