package delivery

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"hash"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/contain"
	"github.com/watermill-spillway/spillway/internal/keys"
)

// mark names a message for one consumer, in the form in which it stands in columns.
type mark struct{ consumer, id string }

func (m mark) fields() watermill.LogFields {
	return watermill.LogFields{"consumer": m.consumer, "key": m.id}
}

func (l *Limit) markOf(msg *message.Message) mark {
	consumer := l.config.Consumer
	if consumer == "" {
		consumer = message.HandlerNameFromCtx(msg.Context())
	}
	var id string
	if l.config.Key != nil {
		contain.Hook(l.config.Logger, "LimitConfig.Key", func() { id = l.config.Key(msg) })
	}
	if id == "" {
		id = msg.UUID
	}
	if id == "" {
		id = contentOf(msg)
	}
	return mark{keys.Column(consumer), keys.Column(id)}
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
	return context.WithTimeout(context.WithoutCancel(c.Ctx), l.config.Store.patience())
}

// enter leaves the mark of a first delivery, or tells how many earlier ones did not return and leaves nothing.
func (l *Limit) enter(c *chain.Call, m mark, process string) (earlier int, err error) {
	ctx, cancel := l.statement(c)
	defer cancel()
	if by, owes := l.debts.owes(m); owes { // else a delivery that did return would count
		if err := l.config.Store.clear(ctx, l.config.Service, m, by); err != nil {
			return 0, err
		}
		l.debts.paid(m)
	}
	return l.config.Store.enter(ctx, l.config.Service, m, process)
}

// again counts one more delivery and tells how many there are with it.
func (l *Limit) again(c *chain.Call, m mark, process string) (deliveries int, err error) {
	ctx, cancel := l.statement(c)
	defer cancel()
	return l.config.Store.again(ctx, l.config.Service, m, process)
}

// failed notes that a mark was not written, and is to be removed in case it was. The message goes on without.
func (l *Limit) failed(c *chain.Call, m mark, process string, err error) {
	l.kept(l.debts.owe(m, process), m)
	if l.debts.pause() {
		l.config.Logger.Error("delivery: cannot mark a delivery: messages are handled without marks, and the store is asked again soon",
			err, m.fields())
	}
}

// remove takes the mark of a delivery that came to an end. What is not removed now is removed by the next beats.
func (l *Limit) remove(m mark, process string) {
	ctx, cancel := context.WithTimeout(context.Background(), l.config.Store.patience())
	defer cancel()
	err := l.config.Store.clear(ctx, l.config.Service, m, "")
	if err == nil {
		return
	}
	l.kept(l.debts.owe(m, process), m)
	if l.debts.pause() {
		l.config.Logger.Error("delivery: cannot remove the mark of a delivery that returned; this is tried again", err, m.fields())
	}
}

// kept logs the first mark for which there was no room among the debts. More of them would say nothing new.
func (l *Limit) kept(room bool, m mark) {
	if !room && l.debts.full.CompareAndSwap(false, true) {
		l.config.Logger.Error("delivery: a mark that is to be removed is forgotten, and perhaps others are: it counts until its message "+
			"is handled again, or until old marks are removed", errTooMany, m.fields())
	}
}

var errTooMany = errors.New("delivery: " + strconv.Itoa(most) + " marks wait to be removed")

// pause is for how long no mark is written after one failed.
const pause = 5 * time.Second
