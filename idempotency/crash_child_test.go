package idempotency_test

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/child"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/wire"
)

// planned is a message of the source, and where the process dies that is the first to have it there.
type planned struct{ ID, DiesAt string }

// setting is what a process is told.
type setting struct {
	Database, Address, Dir string
	Leases                 bool
	Messages               []planned
}

// file is one of a source's, which are only ever appended to.
func (s *setting) file(name string) string { return filepath.Join(s.Dir, name) }

func (s *setting) paper(t testing.TB, name string) *paper { return &paper{t: t, path: s.file(name)} }

// mortal is a process until it is killed.
type mortal struct {
	setting
	database
	t       *testing.T
	killed  map[int]bool // by processes before
	index   atomic.Int64 // of the message that it has
	handled atomic.Bool  // the handler is done with it
}

// live consumes until the process is killed, or nothing is left.
func live(t *testing.T, text string) {
	m := &mortal{t: t, killed: map[int]bool{}}
	testkit.NoError(t, json.Unmarshal([]byte(text), &m.setting))
	for _, line := range lines(t, m.file("kills")) {
		index, _, _ := strings.Cut(line, ":")
		i := testkit.Must(strconv.Atoi(index))
		m.killed[i] = true
	}
	for _, d := range columns {
		if d.name == m.Database {
			m.consume(d)
		}
	}
}

func (m *mortal) consume(d database) {
	db, w := wire.Open(m.t, d.driver, m.Address)
	m.database = d
	at := func(step string) func(*wire.Conn, string) error {
		return func(_ *wire.Conn, statement string) error {
			if wire.IsCommit(statement) && m.handled.Load() {
				m.die(step)
			}
			return nil
		}
	}
	w.Set(at("committing"), at("committed"))
	config := spillway.Config{Publisher: m.paper(m.t, "letters"), Idempotency: d.store(db),
		Receiver: &idempotency.ReceiverConfig{MarkPublished: true}}
	if m.Leases {
		config.Receiver.Lease, *idempotency.RequeueAfter(config.Receiver) = time.Second, 40*time.Millisecond
	}
	var messages []*message.Message
	for _, p := range m.Messages {
		messages = append(messages, newMessage(p.ID))
	}
	from := newSpool(m.t, m.file("acks"), messages...)
	from.delivers = func(index int) { m.index.Store(int64(index)); m.handled.Store(false) }
	from.acked = func(int) { m.die("acking") }
	out := m.paper(m.t, "outputs")
	out.before = func(*message.Message) error { m.die("publishing"); return nil }
	out.after = func(*message.Message) error { m.die("published"); return nil }
	pass(m.t, newChannel(m.t, config).Attach, from, out, m.handle)
}

// die kills this process where it is, if the plan says so.
func (m *mortal) die(step string) {
	index := int(m.index.Load())
	if m.Messages[index].DiesAt != step || m.killed[index] {
		return
	}
	appendLine(m.t, m.file("kills"), fmt.Appendf(nil, "%d:%s", index, step))
	child.Kill()
}

func (m *mortal) handle(msg *message.Message) ([]*message.Message, error) {
	m.die("claimed")
	if err := m.effect(msg.Context(), msg.UUID); err != nil {
		return nil, err
	}
	m.die("handled")
	m.handled.Store(true)
	return []*message.Message{message.NewMessage("", []byte(msg.UUID))}, nil
}

// effect writes to the database, or under a lease to a file, with the token.
func (m *mortal) effect(ctx context.Context, id string) error {
	fence, leased := idempotency.Fence(ctx)
	if open := idempotency.Tx(ctx) != nil; leased != m.Leases || open == m.Leases {
		return fmt.Errorf("leased: %v, transaction: %v", leased, open)
	}
	if leased {
		appendLine(m.t, m.file("effects"), fmt.Appendf(nil, "%s:%d", id, fence))
		return nil
	}
	return m.enter(ctx, id)
}
