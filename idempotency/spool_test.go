package idempotency_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

// spool is a source that outlives its process: messages in order, one at a time, each until it is acked. Acks are lines
// of a file, and what is there is not delivered again.
type spool struct {
	t        testing.TB
	messages []*message.Message
	acks     string          // the file; no two spools have it open
	delivers func(index int) // called before each delivery, if set
	acked    func(index int) // called before an ack is written, if set
	done     chan struct{}   // closed when every message is acked
	once     sync.Once
}

func newSpool(t testing.TB, acks string, messages ...*message.Message) *spool {
	return &spool{t: t, messages: messages, acks: acks, done: make(chan struct{})}
}

func (s *spool) Subscribe(ctx context.Context, _ string) (<-chan *message.Message, error) {
	acked := map[string]bool{}
	for _, line := range lines(s.t, s.acks) {
		acked[line] = true
	}
	out := make(chan *message.Message)
	go func() {
		defer close(out)
		for i, msg := range s.messages {
			if !acked[strconv.Itoa(i)] && !s.deliver(ctx, out, i, msg) {
				return
			}
		}
		s.once.Do(func() { close(s.done) })
		<-ctx.Done()
	}()
	return out, nil
}

// deliver gives a message until it is acked.
func (s *spool) deliver(ctx context.Context, out chan<- *message.Message, i int, original *message.Message) bool {
	for {
		msg := original.Copy()
		alive, cancel := context.WithCancel(ctx)
		msg.SetContext(alive)
		defer cancel()
		if s.delivers != nil {
			s.delivers(i)
		}
		select {
		case out <- msg:
		case <-ctx.Done():
			return false
		}
		select {
		case <-msg.Acked():
			if s.acked != nil {
				s.acked(i)
			}
			appendLine(s.t, s.acks, strconv.AppendInt(nil, int64(i), 10))
			return true
		case <-msg.Nacked():
			cancel()
		case <-ctx.Done():
			return false
		}
	}
}

func (s *spool) Close() error { return nil }

func lines(t testing.TB, path string) []string {
	t.Helper()
	text, err := os.ReadFile(path)
	testkit.Require(t, err == nil || os.IsNotExist(err), "%v", err)
	return strings.Fields(string(text)) // none of ours holds a space
}

// paper is a publisher that outlives its process: messages are lines of a file.
type paper struct {
	t             testing.TB
	path          string
	before, after func(*message.Message) error // of each publish, if set
}

// sheet is a published message.
type sheet struct{ Topic, ID, Payload, Reason string }

func (p *paper) Publish(topic string, messages ...*message.Message) error {
	for _, msg := range messages {
		if p.before != nil {
			if err := p.before(msg); err != nil {
				return err
			}
		}
		line, err := json.Marshal(sheet{topic, msg.UUID, string(msg.Payload), msg.Metadata.Get("x-failure-reason")})
		if err != nil {
			return err
		}
		appendLine(p.t, p.path, line)
		if p.after != nil {
			if err := p.after(msg); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *paper) Close() error { return nil }

func (p *paper) read() (sheets []sheet) {
	p.t.Helper()
	text, err := os.ReadFile(p.path)
	if err != nil && !os.IsNotExist(err) {
		p.t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var s sheet
		testkit.NoError(p.t, json.Unmarshal([]byte(line), &s))
		sheets = append(sheets, s)
	}
	return sheets
}

func newChannel(t testing.TB, config spillway.Config) *spillway.Channel {
	return testkit.Must(spillway.New(t.Context(), config))
}

// pass runs a router with what attach gives it until the spool is empty.
func pass(t testing.TB, attach func(*message.Router), from *spool, out *paper, h message.HandlerFunc) {
	t.Helper()
	router := testkit.Must(message.NewRouter(message.RouterConfig{CloseTimeout: deadline}, watermill.NopLogger{}))
	attach(router)
	router.AddHandler("billing", "orders", from, "invoices", out, h)
	stopped := make(chan error, 1)
	go func() { stopped <- router.Run(context.Background()) }()
	select {
	case <-from.done:
	case err := <-stopped:
		t.Fatal("the router ended: ", err)
	case <-time.After(3 * time.Minute):
		t.Error("the spool is not empty after three minutes")
	}
	testkit.Is(t, router.Close(), nil)
	testkit.Is(t, <-stopped, nil)
}

// asItIs is a change of nothing.
func asItIs(*spillway.Config, *paper) {}

// passed passes messages through a router with the whole channel, as change has it, and returns the dead letters and
// the outputs.
func (c *cell) passed(h message.HandlerFunc, change func(*spillway.Config, *paper), messages ...*message.Message) (letters, outputs []sheet) {
	c.Helper()
	dir := c.TempDir()
	out, dead := &paper{t: c, path: filepath.Join(dir, "out")}, &paper{t: c, path: filepath.Join(dir, "dead")}
	config := spillway.Config{Publisher: dead, Idempotency: c.store(c.db)}
	change(&config, out)
	pass(c, newChannel(c, config).Attach, newSpool(c, filepath.Join(dir, "acks"), messages...), out, h)
	return dead.read(), out.read()
}
