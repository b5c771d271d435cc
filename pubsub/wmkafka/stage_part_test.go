package wmkafka

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/hold/due"
	"github.com/watermill-spillway/spillway/internal/hold/placing"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

// pauses are the members of a group whose partition is paused, and goes on.
type pauses struct {
	sarama.ConsumerGroup
	mu     sync.Mutex
	paused bool
	times  int
}

func (p *pauses) Pause(map[string][]int32)  { p.set(true) }
func (p *pauses) Resume(map[string][]int32) { p.set(false) }

func (p *pauses) set(paused bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.paused = paused
	p.times++
}

func (p *pauses) isPaused() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.paused
}

// partAt is a partition of a session, and is consumed from an offset on.
func partAt(t *testing.T, next int64, stage due.Stage) (*part, *pauses, chan *sarama.ConsumerMessage) {
	ctx, cancel := context.WithCancel(context.Background())
	members := &pauses{}
	config := &SubscriberConfig{InFlight: 4, Unmarshaler: byOffset{}, nackBackoff: time.Second, maxNackBackoff: time.Second,
		maxPlacingBytes: 16 << 20}
	p := &part{config: config, denials: new(denials), members: members, topic: &stageTopic{name: "stage", stage: &stage}, taking: ctx, ctx: ctx,
		next: next, committed: next, wake: make(chan struct{}, 1)}
	records := make(chan *sarama.ConsumerMessage, 256)
	var running sync.WaitGroup
	running.Go(func() { p.consume(records) })
	t.Cleanup(func() { cancel(); running.Wait() })
	return p, members, records
}

// byOffset reads messages whose ids are their offsets.
type byOffset struct{}

func (byOffset) Unmarshal(r *sarama.ConsumerMessage) (*message.Message, error) {
	return message.NewMessage(strconv.FormatInt(r.Offset, 10), nil), nil
}

func sendTo(to chan<- *sarama.ConsumerMessage, offset int64, n, size int) {
	for i := range int64(n) {
		to <- &sarama.ConsumerMessage{Offset: offset + i, Value: make([]byte, size)}
	}
}

// Features R5, P1: while messages are placed elsewhere, those behind them are handled, in a bound. Confirms come in any
// order, and nothing is marked behind one that is missing. A message that is nacked comes again.
func TestStagePlacing(t *testing.T) {
	for name, row := range map[string]struct {
		inFlight, most int
		first          bool
		want           int // that are taken before the first is acked
	}{
		"in the bound":   {inFlight: 4, most: 10, want: 10},
		"none":           {inFlight: 4, most: -1, want: 4},
		"first":          {inFlight: 4, most: 10, first: true, want: 4},
		"one at a time":  {inFlight: 1, most: 10, want: 1},
		"more in flight": {inFlight: 12, most: 10, want: 12},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				open, times := map[string]*message.Message{}, map[string]int{}
				p, _, records := partAt(t, 100, due.Stage{
					Delay: time.Second,
					Until: func(_ *message.Message, arrived time.Time) time.Time { return arrived },
					Take: func(msg *message.Message) {
						if row.first {
							placing.First(msg.Context())
						}
						placing.Begin(msg.Context(), msg)
						aside := row.inFlight > 1 && row.most > 0 && !row.first
						testkit.Check(t, placing.IsAside(msg.Context()) == aside, "aside is %t", !aside)
						mu.Lock()
						open[msg.UUID] = msg
						times[msg.UUID]++
						mu.Unlock()
						select {
						case <-msg.Acked():
						case <-msg.Nacked():
						}
					},
				})
				p.config.InFlight, p.config.MaxPlacing = row.inFlight, row.most
				sendTo(records, 100, 20, 1<<10)
				synctest.Wait()
				testkit.Check(t, len(open) == row.want, "%d are taken, want %d", len(open), row.want)
				marked := func(when string, want int64) {
					t.Helper()
					synctest.Wait()
					if got := p.mark(); got != want {
						t.Errorf("%s: marked %d, want %d", when, got, want)
					}
				}
				ackAll := func(but string) {
					for acks := 1; acks > 0; synctest.Wait() {
						acks = 0
						mu.Lock()
						for id, msg := range open {
							if id != but && msg.Ack() {
								delete(open, id)
								acks++
							}
						}
						mu.Unlock()
					}
				}
				ackAll("100")
				marked("all but the first are confirmed", 100)
				open["100"].Nack()
				time.Sleep(time.Second)
				marked("the first came again", 100)
				if times["100"] != 2 {
					t.Errorf("the first was taken %d times", times["100"])
				}
				ackAll("")
				marked("all are confirmed", 120)
				testkit.Check(t, len(times) == 20, "%d were taken", len(times))
			})
		})
	}
}

// Feature R5: of a partition whose messages wait no more is fetched than a little, and more when they are due.
func TestStagePaused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var taken sync.WaitGroup
		taken.Add(200)
		p, members, records := partAt(t, 0, due.Stage{
			Until: func(_ *message.Message, arrived time.Time) time.Time { return arrived.Add(time.Hour) },
			Take:  func(msg *message.Message) { taken.Done(); msg.Ack() },
		})
		sendTo(records, 0, 4, 1<<10)
		synctest.Wait()
		testkit.Check(t, !members.isPaused(), "it is paused although there is room")
		sendTo(records, 4, 196, 1<<10)
		synctest.Wait()
		testkit.Check(t, members.isPaused(), "it is not paused although messages wait behind the window")
		taken.Wait() // an hour later
		synctest.Wait()
		mark := p.mark()
		p.mu.Lock()
		defer p.mu.Unlock()
		testkit.Check(t, !members.isPaused() && mark == 200 && p.bytes == 0 && p.held == 0,
			"paused %t, marked %d, %d and %d bytes", members.isPaused(), mark, p.bytes, p.held)
	})
}
