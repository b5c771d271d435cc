package wmamqp_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/pubsub/wmamqp"
)

const laneVariable = "SPILLWAY_WMAMQP_LANES"

// Features R15, P1: the active consumer is killed by SIGKILL. The standby had nothing until then, goes on in order, and
// loses none. It repeats what the broker had not read the ack of: the reset of a killed client drops the acks on the way.
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
	out := testkit.Must(child.StdoutPipe())
	testkit.NoError(t, child.Start())
	t.Cleanup(func() { _ = child.Process.Kill() })
	var begun, after list // ids
	var killed atomic.Bool
	var early, unmarked atomic.Int32
	read := make(chan struct{})
	go func() {
		defer close(read)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var id string
			if _, err := fmt.Sscanf(lines.Text(), "begun %s", &id); err == nil {
				begun.add(id)
			}
		}
	}()
	eventually(t, "the active one is at work", func() bool { return len(begun.get()) >= 20 })
	standby := b.subscribe(b.subscriber(keyed(lanes)), topic)
	go newJournal(t).handle(standby, func(msg *message.Message) bool {
		after.add(msg.UUID)
		if !killed.Load() {
			early.Add(1)
		}
		if counted, _ := wmamqp.Counts(msg); slices.Contains(begun.get(), msg.UUID) && !counted.Redelivered {
			unmarked.Add(1)
		}
		return true
	})
	subscribed := len(begun.get())
	eventually(t, "the active one goes on beside the standby", func() bool { return len(begun.get()) >= subscribed+100 })
	killed.Store(true)
	testkit.NoError(t, child.Process.Kill())
	<-read
	_ = child.Wait()
	eventually(t, "the queue is empty", func() bool { return b.ready(topic) == 0 })
	both := func() []string { return append(begun.get(), after.get()...) }
	eventually(t, "all were handled", func() bool {
		all := both()
		slices.Sort(all)
		return len(slices.Compact(all)) == keys*n
	})

	last, seen, repeated := map[string]string{}, map[string]bool{}, 0
	for _, id := range both() {
		key := keyOf(message.NewMessage(id, nil))
		if seen[id] {
			repeated++
		} else if id < last[key] {
			t.Errorf("%s came for the first time after %s", id, last[key])
		}
		seen[id], last[key] = true, max(last[key], id)
	}
	t.Logf("%d repeated, of %d lanes", repeated, lanes)
	if len(begun.get()) == keys*n || early.Load() > 0 || unmarked.Load() > 0 {
		t.Errorf("%d by the active one; %d by the standby before the kill; %d without a mark",
			len(begun.get()), early.Load(), unmarked.Load())
	}
}
