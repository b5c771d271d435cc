package conformance

import (
	"cmp"
	"context"
	"database/sql"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/testing/results"
	"github.com/watermill-spillway/spillway/middleware/stages/delay"
	"github.com/watermill-spillway/spillway/naming"
	"github.com/watermill-spillway/spillway/poison"
)

// feature is a row of the results.
type feature struct {
	id    string
	title string
	rests string // the ids of the sentences of the contract that it rests on
	run   func(*bench)
}

// atATime is the number of rows with processes of their own that run at once. All of them starve a broker beside them.
const atATime = 12

// Run tests a pub/sub, with a subtest for each feature. For faults it starts processes in which the calling test runs
// again and Run is a consumer.
func Run(t *testing.T, target Target) {
	if child := os.Getenv(ChildVariable); child != "" {
		if child == childName(t, target) {
			consume(t, target)
		}
		return
	}
	target.validate(t)
	target.command = childCommand(t, target)
	results := map[string]string{}
	for _, f := range target.rows() { // first, while the suites on the same broker are at these rows too
		if _, pinned := target.Pins[f.id]; !pinned && restarts[f.id] {
			results[f.id] = f.on(t, target)
		}
	}
	var together sync.WaitGroup
	var after, last []func() // what runs together comes after the others, and last its records, in order
	for _, f := range target.rows() {
		result, done := results[f.id]
		if _, pinned := target.Pins[f.id]; pinned {
			result, done = "pinned", true
		}
		if alone, fault := faults[f.id]; fault && !alone {
			if !done {
				after = append(after, func() { result = f.on(t, target) })
			}
			last = append(last, func() { record(t, target, f, result) })
			continue
		}
		if !done {
			result = f.on(t, target)
		}
		record(t, target, f, result)
	}
	room := make(chan struct{}, atATime)
	for _, f := range slices.Backward(after) { // outages, which wait longest, are the last of the list
		room <- struct{}{}
		together.Go(func() { defer func() { <-room }(); f() })
	}
	together.Wait()
	for _, f := range last {
		f()
	}
}

// validate fails the test before any feature runs, if the features would fail for reasons other than the pub/sub.
func (target *Target) validate(t *testing.T) {
	if target.Name == "" || target.Publisher == nil || target.Subscriber == nil {
		t.Fatalf("Target.Name (%q), Target.Publisher and Target.Subscriber are required: set them", target.Name)
	}
	for _, id := range target.Only {
		if !slices.ContainsFunc(features(), func(f feature) bool { return f.id == id }) {
			t.Fatalf("Target.Only names %q, which is no feature: use an id that the documentation of package conformance lists",
				id)
		}
	}
	for id, pin := range target.Pins {
		row, _, _ := strings.Cut(id, "/")
		if !slices.ContainsFunc(features(), func(f feature) bool { return f.id == row }) {
			t.Fatalf("Target.Pins names %q, which is no feature: use an id that the documentation of package conformance lists",
				id)
		}
		if _, _, err := readPin(pin); err != nil {
			t.Fatalf("Target.Pins[%q]: %v", id, err)
		}
	}
}

// rows are the features that the column has.
func (target *Target) rows() []feature {
	return slices.DeleteFunc(features(), func(f feature) bool {
		return target.Only != nil && !slices.Contains(target.Only, f.id)
	})
}

// on runs the feature and returns its result, or "" if -run left it out.
func (f feature) on(t *testing.T, target Target) (result string) {
	if lock := target.Beside; lock != nil && restarts[f.id] {
		lock.Lock()
		defer lock.Unlock()
	} else if lock != nil {
		lock.RLock()
		defer lock.RUnlock()
	}
	target.row = newRow(f, target)
	passed := t.Run(f.id, func(t *testing.T) {
		result = "pass"
		defer func() {
			if !target.row.check(t) {
				result = "pinned"
			}
			if t.Failed() {
				t.Log(f.why())
			}
			if t.Skipped() {
				result = "skipped"
			}
		}()
		if _, fault := faults[f.id]; fault {
			f.run(newBareBench(t, target))
			return
		}
		f.run(newBench(t, target))
	})
	if !passed {
		return "fail"
	}
	return result
}

// record writes the row's line, and one for each of its cases that the target pins.
func record(t *testing.T, target Target, f feature, result string) {
	lines := []results.Line{{PubSub: target.Name, Feature: f.id, Title: f.title, Rests: f.sentences(), Result: result}}
	pinCell(t, &lines[0], target.Pins[f.id])
	cases := newRow(f, target).pins
	for _, name := range slices.Sorted(maps.Keys(cases)) {
		line := lines[0]
		line.Case, line.Result = name, "pinned"
		pinCell(t, &line, cases[name])
		lines = append(lines, line)
	}
	if result == "" {
		return
	}
	if err := results.Append(lines...); err != nil {
		t.Fatalf("%s: %v", results.Variable, err)
	}
}

// pinCell notes the target's pin, if there is one, and logs it.
func pinCell(t *testing.T, l *results.Line, pin string) {
	if pin == "" {
		return
	}
	id, reason, err := readPin(pin)
	if err != nil {
		t.Fatal(err)
	}
	s, _ := said(id)
	l.Sentence, l.Reason = s.String(), reason
	t.Logf("%s %s is pinned: %s does not hold: %s", l.Feature, cmp.Or(l.Case, l.Title), id, reason)
}

// row is a feature while it runs on a target. It knows which of its cases the target pins.
type row struct {
	feature
	pins map[string]string // of its cases

	mu    sync.Mutex
	asked map[string]bool // the cases that there are: true for one that ran
}

func newRow(f feature, target Target) *row {
	r := &row{feature: f, pins: map[string]string{}, asked: map[string]bool{}}
	for id, pin := range target.Pins {
		if of, name, isCase := strings.Cut(id, "/"); isCase && of == f.id {
			r.pins[name] = pin
		}
	}
	return r
}

// pinned reports whether the target pins the case.
func (r *row) pinned(name string) bool {
	_, pinned := r.pins[name]
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked[name] = !pinned
	return pinned
}

// check fails the row if the target pins a case that the row does not have, and reports whether a case ran, if the row
// has any.
func (r *row) check(t *testing.T) (ran bool) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for name := range r.pins {
		if _, ok := r.asked[name]; !ok && !t.Failed() {
			t.Errorf("Target.Pins names %q, which is no case of %s: its cases are the names of its subtests, with spaces",
				r.id+"/"+name, r.id)
		}
	}
	ran = len(r.asked) == 0
	for _, did := range r.asked {
		ran = ran || did
	}
	return ran
}

// variant runs a case of the row on a bench of its own, unless the target pins the case.
func (b *bench) variant(name string, run func(*bench)) {
	b.Helper()
	b.variantOn(newBench, name, run)
}

func (b *bench) variantOn(bench func(*testing.T, Target) *bench, name string, run func(*bench)) {
	b.Helper()
	path := name
	if b.variantOf != "" {
		path = b.variantOf + "/" + name
	}
	if b.target.row.pinned(path) {
		return
	}
	b.Run(name, func(t *testing.T) {
		b := bench(t, b.target)
		b.variantOf = path
		run(b)
	})
}

// Target is a pub/sub under test. Name, Publisher and Subscriber are required. A row that needs another field fails
// without it, and names the field. Set the field, or pin the row.
type Target struct {
	// Name heads the pub/sub's column in the results.
	Name string
	// Only lists the rows of a column that differs from another one of the same pub/sub in little, such as its
	// marshaler. Default: all rows.
	Only []string

	// Publisher returns a new publisher that confirms what it publishes. The suite closes it.
	Publisher func(t testing.TB) message.Publisher
	// Subscriber returns a new subscriber of the consumer group. The suite or its router closes it. For D8 and K14, the
	// subscriber must fail to unmarshal a message whose payload is Unreadable, and deliver the message marked by
	// poison.MarkUnreadable.
	Subscriber func(t testing.TB, group string) message.Subscriber
	// Stages returns the publisher and the subscribers of the stage topics of a service, if they are more than a
	// Publisher and a Subscriber for each topic. They are closed with the test.
	Stages func(t testing.TB, service string) (message.Publisher, func(topic, group string) (message.Subscriber, error))
	// Redelivers returns a subscriber of the group to which the broker redelivers a message that has waited this long
	// for its ack, and whose RedeliveryTime is after. Default: the broker has no such time, and the rows that need it
	// do not run.
	Redelivers func(t testing.TB, group string, after time.Duration) message.Subscriber
	// Keyed returns a publisher whose messages have the value of the metadata field "tenant" as their key, and a
	// subscriber of the group that takes messages of 16 keys at a time, those of one key in order. The suite closes
	// both. Default: the pub/sub has no keys, and row R15 does not run.
	Keyed func(t testing.TB, group string) (message.Publisher, message.Subscriber)
	// Ordered is Keyed for a subscriber that spillway.Config.Ordered takes, and that may have one message at a time.
	// Default: row R13 checks that Ordered refuses what Subscriber returns.
	Ordered func(t testing.TB, group string) (message.Publisher, message.Subscriber)
	// Origin is poison.QueueConfig.Origin for this pub/sub.
	Origin func(*message.Message) poison.Origin
	// Backlog returns redrive.DrainTopicConfig.Backlog for a consumer group.
	Backlog func(t testing.TB, group string) func(ctx context.Context, topic string) (int, error)

	// CreateTopic makes a topic that can be published to and subscribed to at once, and removes it after the test. The
	// suite calls it for each topic that it publishes to itself: live topics, topics of outputs, fallbacks, and
	// dead-letter topics of foreign letters. Each other topic, of dead letters, stages, parked and quarantined letters,
	// is made by the publisher's InitializeTopics. Default: topics come into being by themselves.
	CreateTopic func(t testing.TB, topic string)
	// BadTopic is a name that the broker does not accept.
	BadTopic string
	// Naming names the topics that are derived from others, if the broker takes no names with dots. Default:
	// naming.Dots.
	Naming naming.Scheme
	// Origins lists the metadata keys of the origin that the broker fills in beside topic, handler and id.
	Origins []string
	// BrokersOwn lists metadata keys that the broker or the client adds or changes. The suite does not compare them.
	BrokersOwn []string
	// MaxMessage is the size in bytes of the largest message that the publisher accepts. 0 means no bound.
	MaxMessage int
	// Hostile lists messages that only the broker's own client can send.
	Hostile []Hostile

	// Database is for a pub/sub on tables whose messages are consumed in a transaction that the handler's writes join.
	// It returns the database that holds the messages, the same at each call, and the store of keys that joins the
	// transaction. The suite makes tables of its own in the database. Default: effects are in SQLite.
	Database func(t testing.TB) (*sql.DB, idempotency.Store)

	// Delays returns a store of messages that wait, in the database that holds the broker's messages. Default: it is in
	// SQLite.
	Delays func(t testing.TB) *delay.Store
	// Holds reports that a message which waits in a topic holds a transaction or runs into a deadline. Long stages then
	// wait in the store of Delays.
	Holds bool
	// Resumed is the number of failed messages of a topic that are placed elsewhere while the subscriber delivers the
	// next ones, in order. 0 means that the next message waits for the confirm.
	Resumed int
	// Competing reports that all subscribers of a topic share its messages, whatever their groups.
	Competing bool

	// CreateShared makes a topic that two members of a group consume at the same time. Default: CreateTopic.
	CreateShared func(t testing.TB, topic string)
	// DeleteTopic removes a topic, even if it is in use, and returns when it is gone. A missing topic is no error.
	DeleteTopic func(t testing.TB, topic string)
	// ReadOnly makes a topic that refuses every message until writable is called.
	ReadOnly func(t testing.TB, topic string) (writable func())
	// Restart stops the broker gracefully, starts it, and returns when it answers. It may skip the test if the broker
	// cannot be restarted.
	Restart func(t testing.TB)
	// Beside is locked while a row runs, for targets on one broker whose suites run at the same time: give all of them
	// the same lock. A row that restarts the broker then waits until no other row runs. Default: none.
	Beside *sync.RWMutex
	// Service names the server among those of "make services", if it can be killed and holds messages and effects. The
	// suite kills it, and starts it again.
	Service string
	// Address is the broker's host:port, which the suite puts a proxy in front of.
	Address string
	// Through returns a publisher with time-outs of seconds. All its connections go to address, even if the broker
	// advertises another one. The suite closes it.
	Through func(t testing.TB, address string) message.Publisher
	// SubscriberThrough returns a subscriber whose connections all go to address.
	SubscriberThrough func(t testing.TB, group, address string) message.Subscriber

	// Pins maps what the pub/sub does not offer to the sentence of docs/pubsub.md that it does not keep, and the
	// reason, such as "K12: lives in one process". The suite does not run what is pinned. A key is the id of a row,
	// such as "F2", or of one case of a row, such as "H1/id of 300 bytes". The name of a case is the name of its
	// subtest, with spaces.
	Pins map[string]string

	command func() (*exec.Cmd, error) // of a consuming process
	row     *row                      // that runs
	wait    time.Duration             // how long rows of the contract wait for a message, if not the usual patience
}

// Unreadable is a payload that the subscriber's unmarshaler must refuse.
const Unreadable = "conformance: no unmarshaler can read this"

// Hostile is a message that only the broker's own client can send.
type Hostile struct {
	// Name says what is hostile about the message.
	Name string
	// Publish sends the message, with the id "hostile" if the client can set an id.
	Publish func(t testing.TB, topic string)
	// Check is called with the message that came back from a redrive.
	Check func(t testing.TB, msg *message.Message)
}
