package delayed

import (
	"context"
	"errors"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/boundedtext"
	"github.com/watermill-spillway/spillway/internal/errs/safecall"
	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/internal/upstream/destination"
)

// move is one batch on its way.
type move struct {
	worker  *worker
	ctx     context.Context // of statements
	stop    context.Context // of the relay
	token   string
	rows    []taken // not published yet
	done    []int64 // published, and not deleted yet
	renewed time.Time
	flushed time.Time
	lost    bool // others may have the rest
}

// run publishes the rows in their order, deletes what was published, and gives back the rest.
func (m *move) run(rows []taken) {
	m.rows = rows
	for len(m.rows) > 0 && m.stop.Err() == nil && m.held() {
		m.one()
		if time.Since(m.flushed) > flushEvery {
			m.flush()
		}
	}
	m.flush()
	if len(m.rows) > 0 {
		m.giveBack(len(m.rows))
	}
}

// held renews the lease when a third of it is over, and reports whether it still lasts.
func (m *move) held() bool {
	if time.Since(m.renewed) >= m.worker.from.config.Lease/3 {
		m.renew()
	}
	return !m.lost && time.Since(m.renewed) < m.worker.from.config.Lease
}

func (m *move) renew() {
	now := time.Now()
	all, err := m.worker.from.store.renew(m.ctx, m.token, append(seqsOf(m.rows), m.done...), m.worker.from.config.Lease)
	if err != nil {
		m.orLog("renew a lease", err)
		return
	}
	m.renewed = now
	if !all {
		m.lost = true
		eventDelayLeaseLost.Write(m.worker.from.config.Logger, nil, nil)
	}
}

// one publishes the next message, or the next messages of one topic, or gives them back.
func (m *move) one() {
	first := m.rows[0]
	if first.damage != nil {
		m.refused(m.rows[:1], first.damage)
		return
	}
	if m.worker.topics.waits(first.topic, time.Now()) {
		m.giveBack(m.same())
		return
	}
	rows := m.rows[:m.worker.topics.atOnce(first.topic, m.same())]
	if err := m.publish(rows); err != nil {
		m.refused(rows, err)
		return
	}
	m.worker.topics.took(first.topic)
	m.done = append(m.done, seqsOf(rows)...)
	m.drop(len(rows))
}

// same is how many of the next messages go to the same topic.
func (m *move) same() int {
	n := 1
	for n < len(m.rows) && m.rows[n].topic == m.rows[0].topic && m.rows[n].damage == nil {
		n++
	}
	return n
}

// drop takes the next rows away, with what they hold.
func (m *move) drop(n int) {
	clear(m.rows[:n])
	m.rows = m.rows[n:]
}

// refused puts off what was not taken. A refusal for size is the message's own and says nothing of the topic.
func (m *move) refused(rows []taken, err error) {
	first := rows[0]
	if len(rows) == 1 && m.givenUp(first, err) {
		m.done = append(m.done, first.seq)
		m.drop(1)
		return
	}
	eventDelayRefused.Write(m.worker.from.config.Logger, err, logging.Fields{
		logging.Topic: first.topic, logging.MessageID: idOf(first), logging.Messages: len(rows),
	})
	if len(rows) == 1 {
		if first.damage == nil && !m.refusedAlways(err) {
			m.worker.topics.refused(first.topic, 1, time.Now())
		}
		wait := doubled(firstRowWait, first.failures, maxRowWait)
		m.orLog("put off a message", m.worker.from.store.postpone(m.ctx, m.token, first.seq, wait))
		m.drop(1)
		return
	}
	m.worker.topics.refused(first.topic, len(rows), time.Now())
	m.giveBack(len(rows))
}

// givenUp reports whether GiveUp took the message, which the publisher will never take.
func (m *move) givenUp(t taken, refusal error) bool {
	if m.worker.from.config.GiveUp == nil || t.msg == nil || !m.refusedAlways(refusal) {
		return false
	}
	err := safecall.Call("GiveUp", func() error {
		return m.worker.from.config.GiveUp(m.ctx, t.topic, t.msg.Copy(), refusal)
	})
	m.orLog("give up a message that its topic refuses", err)
	return err == nil
}

// refusedAlways reports whether a publisher refuses a message for what it is, which says nothing of its topic.
func (m *move) refusedAlways(err error) bool {
	return m.worker.from.config.Classifier.IsTooLarge(err) || destination.IsRefused(err)
}

// giveBack gives back the next rows, as if they had never been taken.
func (m *move) giveBack(n int) {
	m.orLog("give back messages", m.worker.from.store.release(m.ctx, m.token, seqsOf(m.rows[:n])))
	m.drop(n)
}

// flush deletes what was published, and does not rest before it could: what is taken after the lease is published
// again.
func (m *move) flush() {
	for attempt := 0; len(m.done) > 0; attempt++ {
		err := m.worker.from.store.remove(m.ctx, m.token, m.done)
		if err == nil {
			m.worker.recovered()
			m.done, m.flushed = m.done[:0], time.Now()
			return
		}
		if m.ctx.Err() != nil {
			m.orLog("delete what was published", err)
			return
		}
		m.worker.failed(m.ctx, err)
	}
}

func (m *move) orLog(what string, err error) {
	if err != nil {
		eventDelayUnsettled.Write(m.worker.from.config.Logger, err, logging.Fields{"doing": what})
	}
}

var errGoexit = errors.New("the publisher called runtime.Goexit")

// publish calls the publisher in a goroutine of its own, which it may end, and renews the lease meanwhile.
func (m *move) publish(rows []taken) error {
	messages := make([]*message.Message, len(rows))
	for i := range rows {
		messages[i] = rows[i].msg
	}
	ended := make(chan error, 1)
	go func() {
		err := errGoexit
		defer func() { ended <- err }()
		err = safecall.Call("publisher", func() error {
			return m.worker.from.publisher.Publish(rows[0].topic, messages...)
		})
	}()
	ticker := time.NewTicker(m.worker.from.config.Lease / 3)
	defer ticker.Stop()
	for renewals := 0; ; {
		select {
		case err := <-ended:
			return err
		case <-ticker.C:
			if renewals++; renewals <= 3*maxRenewals && !m.lost {
				m.renew()
			}
		}
	}
}

func idOf(t taken) string {
	if t.msg == nil {
		return ""
	}
	return boundedtext.Text(t.msg.UUID, logged)
}

func seqsOf(rows []taken) []int64 {
	seqs := make([]int64, len(rows))
	for i := range rows {
		seqs[i] = rows[i].seq
	}
	return seqs
}

// Stages and the delay store.
var (
	// each: Make the lease longer, if it goes on.
	eventDelayLeaseLost = logging.InfoEvent("delay_lease_lost",
		"A relay of the delay store lost a lease; the rest of the batch is left to other relays")
	// each: Repair the topic, or its publisher.
	eventDelayRefused = logging.ErrorEvent("delay_refused",
		"Messages out of the delay store are not published; they are tried again later")
	// each: nothing, unless it goes on
	eventDelayUnsettled = logging.InfoEvent("delay_unsettled",
		"A relay of the delay store cannot write down what became of messages; other relays take them when the lease "+
			"is over")
	// outage: Repair the database.
	eventDelayStoreUnavailable = logging.ErrorEvent("delay_store_unavailable",
		"The delay store fails; messages wait until it answers")
	// outage: nothing
	eventDelayStoreBack = logging.InfoEvent("delay_store_back", "The delay store answers again")
)
