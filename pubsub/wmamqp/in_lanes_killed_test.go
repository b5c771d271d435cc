package wmamqp_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/pubsub/wmamqp"
)

const laneVariable = "SPILLWAY_WMAMQP_LANES"

// Features R15, P1: the active consumer is killed by SIGKILL. The standby had nothing until then, goes on in order, loses none, and
// repeats only what was not acked.
func TestLanesGoOnAfterTheActiveConsumerIsKilled(t *testing.T) {
	t.Parallel()
	const keys, n, lanes = 20, 40, 16
	b := newBroker(t)
	if topic := os.Getenv(laneVariable); topic != "" {
		for msg := range b.subscribe(b.subscriber(keyed(lanes)), topic) {
			go func() {
				fmt.Println("begun", msg.UUID)
				time.Sleep(5 * time.Millisecond)
				msg.Ack()
			}()
		}
		return
	}
	topic := b.topic()
	b.declareWith(topic, singleActive)
	b.sequences(topic, keys, n)

	child := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$", "-test.timeout", "5m")
	child.Env = append(os.Environ(), laneVariable+"="+topic)
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = child.Process.Kill() })
	var mu sync.Mutex
	var begun, after []string // ids
	var killed atomic.Bool
	early, unmarked := 0, 0 // guarded by mu
	read := make(chan struct{})
	count := func() int { mu.Lock(); defer mu.Unlock(); return len(begun) }
	go func() {
		defer close(read)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var id string
			if _, err := fmt.Sscanf(lines.Text(), "begun %s", &id); err == nil {
				mu.Lock()
				begun = append(begun, id)
				mu.Unlock()
			}
		}
	}()
	eventually(t, "the active one is at work", func() bool { return count() >= 20 })
	j := newJournal(t)
	standby := b.subscribe(b.subscriber(keyed(lanes)), topic)
	go j.handle(standby, func(msg *message.Message) bool {
		counted, _ := wmamqp.Counts(msg)
		mu.Lock()
		defer mu.Unlock()
		after = append(after, msg.UUID)
		if !killed.Load() {
			early++
		}
		if slices.Contains(begun, msg.UUID) && !counted.Redelivered {
			unmarked++
		}
		return true
	})
	subscribed := count()
	eventually(t, "the active one goes on beside the standby", func() bool { return count() >= subscribed+100 })
	killed.Store(true)
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-read
	_ = child.Wait()
	eventually(t, "the queue is empty", func() bool { return b.ready(topic) == 0 })
	eventually(t, "all were handled", func() bool {
		mu.Lock()
		defer mu.Unlock()
		all := map[string]bool{}
		for _, id := range append(slices.Clone(begun), after...) {
			all[id] = true
		}
		return len(all) == keys*n
	})

	mu.Lock()
	defer mu.Unlock()
	last, seen, repeated := map[string]string{}, map[string]bool{}, 0
	for _, id := range append(slices.Clone(begun), after...) {
		key := keyOf(message.NewMessage(id, nil))
		if seen[id] {
			repeated++
		} else if id < last[key] {
			t.Errorf("%s came for the first time after %s", id, last[key])
		}
		seen[id], last[key] = true, max(last[key], id)
	}
	t.Logf("%d by the active one, %d by the standby, %d repeated", len(begun), len(after), repeated)
	if len(begun) == keys*n || early > 0 || unmarked > 0 {
		t.Errorf("%d by the active one; %d by the standby before the kill; %d repeated without a mark", len(begun), early, unmarked)
	}
	if repeated > lanes {
		t.Errorf("%d were repeated, and %d can be unacked in handlers", repeated, lanes)
	}
}
