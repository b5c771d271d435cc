package conformance

import (
	"bufio"
	"encoding/json"
	"os"
	"testing"
	"time"
)

// ChildVariable names the environment variable that the suite sets for the processes it starts. Such a process is the
// same test, in which Run is a consumer. The value names the test and the target.
const ChildVariable = "SPILLWAY_CONFORMANCE_CHILD"

func childName(t *testing.T, target Target) string { return t.Name() + " " + target.Name }

// setting configures a consuming process. It is the first line of the process's standard input.
type setting struct {
	Database              string
	Topic, Outputs, Group string
	// Halt names the step, by the message's id, at which to stop and wait for "go".
	Halt map[string]string
	// Down is a file. While it is there, messages that wait for the downstream fail.
	Down string
	// Wait is the time between two attempts.
	Wait time.Duration
	// Stages are the delays of the handler's stages. They are topics, or with a Store in that.
	Stages []time.Duration
	Store  string
	// Limit sets messages aside that end the process.
	Limit bool
	// Downstream is the address that the handler calls first. With Guarded, a guard of outages stands before the
	// handler.
	Downstream string
	Guarded    bool
	// DeadThrough and SourceThrough are addresses to connect to in the broker's place.
	DeadThrough, SourceThrough string
}

// The delay stores: the one that other rows may have too, whose relays move whatever is due, or a file of the row's
// own.
const (
	storeShared = "shared"
	storeOwn    = "own"
)

// The steps of a message between receipt and ack.
const (
	stepReceived  = "received"  // before anything of ours
	stepHandling  = "handling"  // in the handler, before its write
	stepWritten   = "written"   // in the handler, after it
	stepCommitted = "committed" // the receiver has committed, the outputs are not published
	stepOutput    = "output"    // they are
	stepLetter    = "letter"    // before the dead letter is published
	stepPlaced    = "placed"    // after it
	stepLater     = "later"     // before the message is published to a stage, with a store when it comes out of that
	stepStaged    = "staged"    // after it
)

// consume runs a protected router until standard input ends, which it also does with the parent.
func consume(t *testing.T, target Target) {
	in := bufio.NewReader(os.Stdin)
	c := &consumer{going: make(chan struct{})}
	line, err := in.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &c.setting)
	}
	if err != nil {
		t.Fatalf("read the setting: %v", err)
	}
	c.b = &bench{T: t, target: target, topic: c.Topic, outs: c.Outputs, group: c.Group, path: c.Database}
	c.b.openEffects()
	stop := c.run()
	c.tell("up")
	// A line says "go", and so does the end.
	_, err = in.ReadBytes('\n')
	close(c.going)
	for err == nil {
		_, err = in.ReadBytes('\n')
	}
	stop()
}
