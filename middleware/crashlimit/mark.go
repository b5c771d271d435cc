package crashlimit

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"maps"
	"math"
	"slices"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/errs/safecall"
	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database"
	"github.com/watermill-spillway/spillway/internal/text/boundedtext"
)

// mark names a message for one consumer, in the form in which it stands in columns.
type mark struct {
	consumer, id string
	// redrives is how often the message was redriven, or less than 0 for a parked one that a person released, another
	// number for each release. A message that a person brought back starts anew.
	redrives int64
	// content says that only what the message holds names it: another message may have the same mark.
	content bool
}

// written is the mark that one delivery left.
type written struct {
	// delivery is 1 for the first one that left a mark, 2 for the next. It is 0 for the dead letter of the message.
	delivery int
	// process is the id of the process that wrote it, or of a letter what letterOf says.
	process string
}

// all stands for the marks of all deliveries.
var all = written{delivery: math.MaxInt32}

func (m mark) fields() watermill.LogFields {
	return logging.Fields{logging.Handler: m.consumer, logging.Key: m.id}
}

func (l *Limit) markOf(c *chain.Call) mark {
	msg := c.Msg
	consumer := message.HandlerNameFromCtx(msg.Context())
	var id string
	if l.config.Key != nil {
		safecall.Hook(l.config.Logger, "Config.Key", func() { id = l.config.Key(msg) })
	}
	if id == "" {
		id = msg.UUID
	}
	// A producer may forge the count, and gains nothing: all deliveries of its message have the same.
	m := mark{consumer: database.Column(consumer),
		redrives: int64(boundedtext.Count(msg.Metadata[chain.KeyRedriveCount]))}
	if c.Reentry != nil && c.Reentry.Released > 0 {
		m.redrives = -c.Reentry.Released
	}
	if id == "" {
		m.content, id = true, contentOf(msg)
	}
	m.id = database.Column(id)
	return m
}

// contentOf is the hash of a message without an id. Lengths come before what they measure, so that no two messages run
// into the same bytes.
func contentOf(msg *message.Message) string {
	sum := sha256.New()
	add(sum, string(msg.Payload))
	for _, key := range slices.Sorted(maps.Keys(msg.Metadata)) {
		add(sum, key)
		add(sum, msg.Metadata[key])
	}
	return hex.EncodeToString(sum.Sum(nil))
}

func add(sum hash.Hash, s string) {
	_, _ = sum.Write(binary.BigEndian.AppendUint64(nil, uint64(len(s))))
	_, _ = sum.Write([]byte(s))
}

// statement bounds one statement. Its time does not end with a message that goes away: a statement that is cut off may
// have been carried out.
func (l *Limit) statement(c *chain.Call) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(c.Ctx), l.config.store.patience())
}

// enter leaves the mark of a delivery, and reports whether it did: not if the message has a delivery of that number.
func (l *Limit) enter(c *chain.Call, m mark, w written) (entered bool, err error) {
	ctx, cancel := l.statement(c)
	defer cancel()
	if owed, owes := l.removals.of(m); owes { // else a delivery that did return would count
		if err := l.config.store.clear(ctx, m, owed); err != nil {
			return false, err
		}
		l.removals.done(m, owed)
	}
	return l.config.store.enter(ctx, m, w)
}

// marks returns what deliveries of a message left.
func (l *Limit) marks(c *chain.Call, m mark) ([]written, error) {
	ctx, cancel := l.statement(c)
	defer cancel()
	return l.config.store.marks(ctx, m)
}

// failed notes that a mark was not written, and is to be removed if it was nevertheless. The message goes on without.
func (l *Limit) failed(m mark, w written, err error) {
	l.removeLater(m, written{process: w.process})
	l.outage.began(l.config.Logger, err)
}

// remove takes the mark of a delivery that came to an end. What is not removed now is removed by the beats.
func (l *Limit) remove(m mark, w written) {
	// what others wrote meanwhile is theirs; what was there before was seen by a later one, which clears it
	if w.delivery == 1 {
		w = written{process: w.process}
	} else {
		w.process = ""
	}
	if l.outage.lasts() {
		l.removeLater(m, w)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), l.config.store.patience())
	defer cancel()
	if err := l.config.store.clear(ctx, m, w); err != nil {
		l.removeLater(m, w)
		l.outage.began(l.config.Logger, err)
	}
}
