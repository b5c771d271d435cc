package spillway_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/middleware/breaker"
	"github.com/watermill-spillway/spillway/redrive"
)

// Statements of docs/security.md that no other test holds.

// A publisher to a live topic that takes another message's id is applied in its place; the other is not lost, but dead-lettered as
// invalid.
func TestSecurityTakenID(t *testing.T) {
	b := newBench(t, false)
	stop := b.run(b.channel().Attach, func(msg *message.Message) ([]*message.Message, error) { return nil, b.apply(msg) })
	defer stop()
	b.publish(message.NewMessage("order-1", []byte("forged")))
	b.eventually("the forged one is applied", func() bool { return len(b.effects()) == 1 })
	b.publish(message.NewMessage("order-1", []byte("genuine")))
	b.eventually("the genuine one is dead-lettered", func() bool { return len(b.waiting()) == 1 })
	letter := b.waiting()[0].Letter
	if letter.Failure.Reason != classify.ReasonKeyReused || string(letter.Original.Payload) != "genuine" {
		t.Errorf("%s: %s", letter.Failure.Reason, letter.Original.Payload)
	}
}

// A publisher to a live topic can claim that its own message was redriven often: such a message is quarantined at its first redrive.
func TestSecurityClaimedRedrives(t *testing.T) {
	b := newBench(t, false)
	stop := b.run(b.channel().Attach, func(*message.Message) ([]*message.Message, error) {
		return nil, classify.Permanent(errors.New("no"))
	})
	defer stop()
	msg := message.NewMessage("claims", nil)
	msg.Metadata.Set("x-redrive-count", "1000")
	b.publish(msg)
	b.eventually("it is dead-lettered", func() bool { return len(b.waiting()) == 1 })
	report, err := redrive.Drain(context.Background(), b.letters, b.source, redrive.DrainConfig{Rules: redrive.Rules{Allow: []string{"orders"}}})
	if err != nil || report.Quarantined != 1 || report.Redriven != 0 {
		t.Errorf("%+v, %v", report, err)
	}
}

// Each line of docs/security.md, and each fact of docs/architecture.md, names a test that exists.
func TestDocumentsNameTestsThatExist(t *testing.T) {
	var tests []string
	declared := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	tree(t, "_test.go", func(_, text string) {
		for _, name := range declared.FindAllStringSubmatch(text, -1) {
			tests = append(tests, name[1])
		}
	})
	tree(t, ".md", func(path, text string) {
		for _, name := range regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(text, -1) {
			if !slices.Contains(tests, name[1]) {
				t.Errorf("%s names %s, which is not declared", path, name[1])
			}
		}
		if path != "docs/security.md" {
			return
		}
		for line := range strings.Lines(text) {
			if strings.HasPrefix(line, "| ") && !strings.Contains(line, "Test") && !strings.Contains(line, "| test |") {
				t.Errorf("%s: no test is named: %s", path, line)
			}
		}
	})
}

// A person who sends messages that fail as if the downstream was away cannot stop the good ones among them, and the own ones end.
func TestSecurityPretendedOutage(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	b := newBench(t, false)
	ch := b.channel(func(c *spillway.Config) {
		c.Outage = &breaker.Config{Probe: time.Millisecond, MaxProbe: 10 * time.Millisecond, Doubt: 100 * time.Millisecond}
	})
	stop := b.run(ch.Attach, func(msg *message.Message) ([]*message.Message, error) {
		if msg.Metadata.Get("callback") != "" {
			return nil, fmt.Errorf("call back: %w", syscall.ECONNREFUSED)
		}
		return nil, b.apply(msg)
	})
	defer stop()
	messages := numbered(100)
	for i := range 10 {
		messages[i].Metadata.Set("callback", "nowhere.example")
	}
	random.Shuffle(len(messages), func(i, j int) { messages[i], messages[j] = messages[j], messages[i] })
	for _, msg := range messages {
		b.publish(msg)
	}
	b.eventually("the good ones are handled", func() bool { return len(b.effects()) == 90 })
	for i := 0; len(b.waiting()) < 10; i++ { // as long as there is traffic, each of the others ends
		b.publish(message.NewMessage(fmt.Sprintf("good-%d", i), nil))
		b.eventually("the next is handled", func() bool { return len(b.effects()) == 91+i })
	}
}
