package conformance

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	_ "modernc.org/sqlite" // the effects of every test, unless the messages are in a database themselves

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/poison"
)

// account is drawn up when a row's processes have ended: every message is counted by id, in the effects table, among
// the dead letters and in what is left in the source. Nothing is nowhere, nothing took effect twice, and, since all
// faults are healed by then, nothing is left: what can succeed has taken effect, and is no dead letter beside that, and
// what cannot is set aside.
func (b *bench) account(ids ...string) {
	b.Helper()
	effects := b.effects()
	for id, n := range effects {
		if n > 1 {
			b.Errorf("%q took effect %d times", id, n)
		}
	}
	good, bad := sortOut(ids)
	letters := b.gather("account", b.dlq(), late, func(letters []*message.Message) bool { return hasAll(letters, bad) })
	astray := slices.DeleteFunc(slices.Clone(good), func(id string) bool { return effects[id] > 0 })
	for _, id := range bad {
		if effects[id] > 0 {
			b.Errorf("%q took effect, and cannot have", id)
		}
		if !has(letters, id) {
			astray = append(astray, id)
		}
	}
	for _, id := range bad {
		if n := count(letters, id); n > 1 {
			b.Logf("%d letters of %q", n, id)
		}
	}
	b.whereAre(astray, letters)
	b.wantRightly(letters, good)
	b.untilNothingLeft()
	b.wantOutputs(good)
}

// wantRightly checks that what is a dead letter cannot succeed, and that what ends the process was set aside for that.
// Where nothing was to be set aside no topic was read, and perhaps there is none: then it is the processes that tell.
func (b *bench) wantRightly(letters []*message.Message, good []string) {
	b.Helper()
	for _, letter := range letters {
		reason := poison.Read(letter).Failure.Reason
		switch {
		case !strings.HasPrefix(letter.UUID, badPrefix):
			b.Errorf("%q is a dead letter with reason %q, and can succeed", letter.UUID, reason)
		case strings.HasPrefix(letter.UUID, deadlyPrefix) && reason != classify.ReasonMaxDeliveries:
			b.Errorf("%q was set aside with reason %q", letter.UUID, reason)
		}
	}
	for _, id := range good {
		if slices.ContainsFunc(b.processes, func(p *process) bool { return p.said("placed", id) }) {
			b.Errorf("a process set %q aside, and it can succeed", id)
		}
	}
}

// sortOut tells the messages that can succeed from those that cannot.
func sortOut(ids []string) (good, bad []string) {
	for _, id := range ids {
		if strings.HasPrefix(id, badPrefix) {
			bad = append(bad, id)
		} else {
			good = append(good, id)
		}
	}
	return good, bad
}

// whereAre fails for each id that is not where it belongs, and says whether it is lost.
func (b *bench) whereAre(ids []string, letters []*message.Message) {
	b.Helper()
	if len(ids) == 0 {
		return
	}
	never := func([]*message.Message) bool { return false }
	for _, topic := range []string{b.dlq(), b.invalid()} {
		letters = append(letters, b.gather("account", topic, silence, never)...)
	}
	left := b.gather(b.group, b.topic, silence, never)
	for _, id := range ids {
		switch {
		case has(letters, id):
			b.Errorf("%q is a dead letter, and can succeed", id)
		case has(left, id):
			b.Errorf("%q is still in the source", id)
		default:
			b.Errorf("%q is lost: neither took effect, nor a dead letter, nor in the source", id)
		}
	}
}

// untilNothingLeft waits until the broker knows that the source's messages are acked.
func (b *bench) untilNothingLeft() {
	b.Helper()
	if b.target.Backlog == nil {
		return
	}
	backlog := b.target.Backlog(b.T, b.group)
	var last error
	var left int
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		left, last = backlog(ctx, b.topic)
		cancel()
		if last == nil && left == 0 {
			return
		}
	}
	b.Errorf("%d messages are left in the source: %v", left, last)
}

// wantOutputs checks that every message that took effect has its output, and that however often that was published it
// has one id.
func (b *bench) wantOutputs(of []string) {
	b.Helper()
	if len(of) == 0 {
		return
	}
	known := map[string]string{}
	outputs := b.gather("account", b.outs, late, func(outputs []*message.Message) bool {
		return distinct(outputs) == len(of)
	})
	for _, out := range outputs {
		id := strings.TrimPrefix(string(out.Payload), outputOf)
		if other, ok := known[id]; ok && other != out.UUID {
			b.Errorf("the output of %q was published as %q and as %q", id, other, out.UUID)
		}
		known[id] = out.UUID
	}
	want, got := slices.Sorted(slices.Values(of)), slices.Sorted(maps.Keys(known))
	if !slices.Equal(want, got) {
		b.Errorf("outputs of %q instead of %q", got, want)
	}
}

const (
	// silence is how long a topic gives nothing when it has nothing more to give.
	silence = 8 * time.Second
	// late is how long what must be there may take to show. On tables a transaction of another row of the suite holds
	// it up.
	late = 30 * time.Second
)

// gather takes out of a topic what is there, until it is enough and nothing follows, or nothing comes for so long.
func (b *bench) gather(group, topic string, patience time.Duration,
	enough func([]*message.Message) bool) (messages []*message.Message) {
	b.Helper()
	if enough(nil) {
		return nil
	}
	sub := b.target.Subscriber(b.T, group)
	defer func() {
		if err := sub.Close(); err != nil {
			b.Error(err)
		}
	}()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	incoming, err := sub.Subscribe(ctx, topic)
	for end := time.Now().Add(2 * late); err != nil && time.Now().Before(end); time.Sleep(time.Second) {
		b.Logf("subscribe to %q: %v", topic, err) // what a row's own fault left on the server may be in the way
		incoming, err = sub.Subscribe(ctx, topic)
	}
	if err != nil {
		b.Errorf("subscribe to %q: %v", topic, err)
		return nil
	}
	for {
		limit := patience
		if enough(messages) {
			limit = time.Second // for what is published again
		}
		select {
		case msg, open := <-incoming:
			if !open {
				return messages
			}
			messages = append(messages, msg)
			msg.Ack()
		case <-time.After(limit):
			return messages
		}
	}
}

func has(messages []*message.Message, id string) bool {
	return slices.ContainsFunc(messages, func(msg *message.Message) bool { return msg.UUID == id })
}

func count(messages []*message.Message, id string) (n int) {
	for _, msg := range messages {
		if msg.UUID == id {
			n++
		}
	}
	return n
}

func hasAll(messages []*message.Message, ids []string) bool {
	return !slices.ContainsFunc(ids, func(id string) bool { return !has(messages, id) })
}

// openEffects opens the database with the effects. Several processes may do so; on SQLite, who writes holds the others
// up.
func (b *bench) openEffects() {
	b.Helper()
	if b.target.Database != nil {
		b.db, b.keys = b.target.Database(b.T)
	} else {
		b.db = b.openFile(b.path)
		keys, err := idempotency.NewStore(b.Context(), b.db, "")
		if err != nil {
			b.Fatal(err)
		}
		b.keys = keys
	}
	// Ids may hold any bytes, and are kept in a form that every database keeps, and that needs no quoting.
	if _, err := b.db.Exec(`CREATE TABLE IF NOT EXISTS ` + b.table() + ` (id TEXT NOT NULL)`); err != nil {
		b.Fatal(err)
	}
}

func (b *bench) openFile(path string) *sql.DB {
	b.Helper()
	db, err := sql.Open("sqlite",
		"file:"+path+"?_pragma=journal_mode(WAL)&_pragma=busy_timeout(60000)&_pragma=synchronous(NORMAL)")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := db.Close(); err != nil {
			b.Error(err)
		}
	})
	return db
}

// table is the effects table of this bench alone.
func (b *bench) table() string {
	return "effects_" + hex.EncodeToString([]byte(b.topic)[len("conformance-"):])
}

// apply writes the message's effect in the receiver's transaction, or in none where there is no receiver.
func (b *bench) apply(msg *message.Message) error {
	insert := fmt.Sprintf(`INSERT INTO %s (id) VALUES ('%x')`, b.table(), msg.UUID)
	if tx := idempotency.Tx(msg.Context()); tx != nil {
		_, err := tx.Exec(insert)
		return err
	}
	_, err := b.db.Exec(insert)
	return err
}

// effects returns how often each id took effect.
func (b *bench) effects() map[string]int {
	b.Helper()
	rows, err := b.db.Query(`SELECT id, count(*) FROM ` + b.table() + ` GROUP BY id`)
	if err != nil {
		b.Fatal(err)
	}
	defer rows.Close()
	counts := map[string]int{}
	for rows.Next() {
		var encoded string
		var n int
		if err := rows.Scan(&encoded, &n); err != nil {
			b.Fatal(err)
		}
		id, err := hex.DecodeString(encoded)
		if err != nil {
			b.Fatal(err)
		}
		counts[string(id)] = n
	}
	if err := rows.Err(); err != nil {
		b.Fatal(err)
	}
	return counts
}

// events is what a process writes: events, and all the rest for the log.
type events struct {
	mu   sync.Mutex
	text bytes.Buffer
	read int // up to here, lines have been looked at
	seen map[string]int
}

func (e *events) Write(p []byte) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.text.Write(p)
	for {
		line, _, whole := bytes.Cut(e.text.Bytes()[e.read:], []byte("\n"))
		if !whole {
			return len(p), nil
		}
		e.read += len(line) + 1
		if event, ok := bytes.CutPrefix(line, []byte(eventPrefix)); ok {
			e.seen[string(event)]++
		}
	}
}

func (e *events) count(event ...any) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.seen[strings.TrimSuffix(fmt.Sprintln(event...), "\n")]
}

// all counts the events of a kind, whatever the message.
func (e *events) all(kind string) (n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for event, times := range e.seen {
		if strings.HasPrefix(event, kind+" ") {
			n += times
		}
	}
	return n
}

func (e *events) String() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.text.String()
}
