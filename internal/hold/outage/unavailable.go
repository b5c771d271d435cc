package outage

import (
	"context"
	"crypto/tls"
	"database/sql/driver"
	"io"
	"net"
	"strings"
	"time"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/errs"
	"github.com/watermill-spillway/spillway/internal/hold"
	"github.com/watermill-spillway/spillway/internal/hold/recent"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database/mysql"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database/postgres"
	"github.com/watermill-spillway/spillway/internal/upstream/foreign"
)

var errWaited = hold.NewUnavailable("the database or broker that the message needs is still unavailable")

// Unavailable reports whether err means that a store or broker is out of reach or out of order. Such an error is not
// about the message:
//
//   - connections refused and lost, time-outs, shutdown, too many connections, a replica that takes no writes, a full
//     disk;
//   - a store that is misconfigured: a missing table, a missing right, a wrong password, numbers of rows that are
//     taken.
//
// It is false for errors of contention (see Contended) and of the data, and for unknown errors. Use it for Spillway's
// own requests. In a handler's error, some of these can be about the message.
func Unavailable(err error) bool {
	ours, looked := false, 0
	for one := range errs.All(err) {
		if looked++; looked > maxErrors || one == context.Canceled {
			return false
		}
		_, own := one.(interface{ OwnFault() })
		ours = ours || own
	}
	if err == nil || Contended(err) {
		return false
	}
	if ours {
		return true
	}
	if state := postgres.State(err); state != "" {
		return unavailableState(state)
	}
	if (*classify.Classifier)(nil).Classify(err).Class == classify.ClassTransient {
		return true
	}
	if number := mysql.Number(err); number != 0 {
		return unavailableNumbers[number]
	}
	return has(err, shape)
}

// maxErrors bounds how many errors one may wrap, such as itself.
const maxErrors = 256

// has reports whether is holds for err or for an error that it wraps.
func has(err error, is func(error) bool) bool {
	for one := range errs.All(err) {
		if is(one) {
			return true
		}
	}
	return false
}

// Contended reports whether a database undid or refused a statement because of other transactions.
func Contended(err error) bool {
	state := postgres.State(err)
	return strings.HasPrefix(state, "40") || state == "55P03" || state == "57014" ||
		interrupted[mysql.Number(err)] || mysql.Undone(err)
}

var interrupted = map[uint16]bool{1317: true, 1969: true, 3024: true, 3572: true} // out of time, or locked

// Refused reports whether the database answered a store's own statement with an error that is about the store: its
// rights, its tables, the settings of the server. So is every answer, except about contention and about the values of
// the message.
func Refused(err error) bool {
	if err == nil || Contended(err) {
		return false
	}
	if state := postgres.State(err); state != "" {
		switch state[:min(2, len(state))] {
		case "22", "25", "3B", "54": // data, the state of the transaction, a savepoint, a size
			return state == "25006"
		}
		return true
	}
	if number := mysql.Number(err); number != 0 {
		return !aboutValues[number]
	}
	for one := range errs.All(err) {
		if e := foreign.ErrorOf(one); e.Kind == foreign.SQLite {
			switch e.Code() {
			case 4, 5, 6, 9, 17, 18, 19, 20, 25: // contention, and values
				return false
			}
			return true
		}
	}
	return false
}

// aboutValues are errors of MySQL and MariaDB about what is to be written, and about the state of the transaction.
var aboutValues = map[uint16]bool{
	mysql.PacketTooLarge: true, mysql.RowTooLarge: true, 1264: true, 1292: true, 1301: true, 1366: true, 1406: true,
	3140: true, 3988: true, mysql.NoSavepoint: true, mysql.NotLocked: true, mysql.Duplicate: true, 1568: true,
}

// NoPlace reports whether err means that the table of a request is missing, or closed to this user. Unavailable reports
// true for such an error too: a store without its table is out of order. For an output, the error means that its topic
// is gone.
func NoPlace(err error) bool {
	switch postgres.State(err) {
	case "42P01", "42501", "3F000":
		return true
	}
	number := mysql.Number(err)
	return number == 1142 || number == 1146
}

// unavailableState reports whether a SQLSTATE (PostgreSQL's Appendix A) means unavailable, by its class or in full.
func unavailableState(state string) bool {
	switch state {
	case "25006", // a replica
		"42P01", "42501", "3D000", "3F000", // no such table, no right, no such database or schema
		"26000", "42P05": // a prepared statement of another session: a pooler is between
		return true
	}
	switch state[:min(2, len(state))] {
	case "08", "28", "53", "57", "58", "XX": // connection, authorization, resources, operator, system, internal
		return true
	}
	return false
}

// unavailableNumbers are errors of MySQL and MariaDB that mean unavailable here. Package classify, for handlers, calls
// them permanent or unknown.
var unavailableNumbers = map[uint16]bool{
	1044: true, 1045: true, 1049: true, 1129: true, 1130: true, // access denied, no such database, host blocked
	1114: true, 1142: true, 1143: true, 1146: true, // table full, command denied (for a column), no such table
	mysql.ReadOnlyTable: true, mysql.StatementLog: true,
	1290: true, 1792: true, 1836: true, // read-only
	1927: true, 3032: true, // connection killed, server in offline mode
}

// shape recognises errors by type, and by text only if they have no type of their own.
func shape(err error) bool {
	switch err {
	case io.EOF, io.ErrUnexpectedEOF, io.ErrClosedPipe, driver.ErrBadConn:
		return true
	}
	switch err.(type) {
	case *hold.Unavailable, *nack, *net.OpError, *net.DNSError, *tls.CertificateVerificationError, tls.RecordHeaderError:
		return true
	case interface{ RedisError() }:
		word, _, _ := strings.Cut(err.Error(), " ")
		return unavailableRedis[word] || err.Error() == "ERR max number of clients reached"
	}
	e := foreign.ErrorOf(err)
	switch code := e.Code(); e.Kind {
	case foreign.Connect:
		return true
	case foreign.AMQP:
		switch code {
		case 506, 541: // resources, internal; package classify knows the others
			return true
		case 501: // a frame that could not be read: by the server, what was sent is wrong
			return !e.ByServer()
		}
	case foreign.Kafka:
		return unavailableKafka[code] || nackedByKafka(e)
	case foreign.SQLite:
		switch code { // read-only, corrupt, cannot open, no database
		case 8, 11, 14, 26:
			return true
		}
		return strings.Contains(err.Error(), "no such table: spillway_")
	case foreign.Plain, foreign.Traced, foreign.Notified:
		return foreign.Says(err.Error(), foreign.UnavailableForUs)
	}
	return false
}

// Lost reports whether err means that an AMQP connection or channel ended under a request. A message can cause that:
// RabbitMQ closes the connection if headers are too large.
func Lost(err error) bool {
	return has(err, func(err error) bool {
		e := foreign.ErrorOf(err)
		return e.Kind == foreign.AMQP && (e.Code() == 501 || e.Code() == 504)
	})
}

// unavailableKafka are Kafka's error codes that mean unavailable for Spillway's own requests, beside those that package
// classify knows: time-outs, a broker that is not the leader or coordinator any more, a full disk, an unknown epoch,
// and what is about this client: a right that it does not have, or not any more, and credentials.
var unavailableKafka = map[int64]bool{6: true, 7: true, 13: true, 16: true, 41: true, 56: true, 74: true, 75: true,
	29: true, 30: true, 31: true, 53: true, // topic, group, cluster, transactional id
	33: true, 34: true, 54: true, 58: true} // mechanism, state of SASL, no security, user or password

// unavailableRedis are the first words of Redis's errors that mean unavailable for Spillway's own requests, beside
// those that package classify knows: no memory, a disk that cannot be written, a replica, a script that runs, a wrong
// password, a missing right.
var unavailableRedis = map[string]bool{
	"OOM": true, "MISCONF": true, "NOREPLICAS": true, "READONLY": true, "BUSY": true, "TRYAGAIN": true,
	"NOAUTH": true, "WRONGPASS": true, "NOPERM": true,
}

const (
	// maxRefusal is how long a message may be refused while others pass. A store that is short of connections refuses
	// some messages too.
	maxRefusal = 5 * time.Minute
	// minRefusals is how often others must have passed between two refusals of a message.
	minRefusals = 3
	// maxInterruptions is how often in a row a lost connection may interrupt work on a message.
	maxInterruptions = 10
	// minBackoff and maxBackoff bound the wait of a message that is refused while others pass.
	minBackoff = 250 * time.Millisecond
	maxBackoff = 10 * time.Second
	// idle is how long no message must have passed until failures of a message count as an outage, although others had
	// passed.
	idle = time.Minute
	// forgotten is how long after its last failure a message that comes again counts as new.
	forgotten = 10 * time.Minute
	// maxDoublings bounds the doublings of maxRefusal.
	maxDoublings = 10
)

// suspect is what is remembered of a message that failed.
type suspect struct {
	first, last   time.Time
	refusals      int // with others that passed in between
	losses        int // errors that are Config.Lost
	interruptions int

	due     time.Time     // the next attempt, if others pass
	backoff time.Duration // before due

	cuts     int       // of the connection under a request, in a row, while no other message met one
	firstCut time.Time // of these
	hopeless bool      // the message cuts the connection, or is let go: see nacks
}

// suspects are messages that failed lately. The dependency's lock guards them.
type suspects struct {
	recent.Memory[suspect]
	others time.Time // when a message last passed

	cut          recent.Message // the message that met the latest cut
	disconnected time.Time      // when an error last said that there is no connection
	inVain       int            // messages that were found to cut the connection, since one passed
}

// refused notes that a message was refused, and that the connection was lost under its request if so. It reports
// whether others passed since the message was last refused. If they did, the message's next wait is longer.
func (s *suspects) refused(of recent.Message, now time.Time, lost bool, l link) (alone bool) {
	one := s.Note(of, now)
	if one.first.IsZero() {
		one.first = now
	}
	alone = one.refusals > 0 && s.others.After(one.last)
	if alone || one.refusals == 0 {
		one.refusals++
	}
	if alone {
		one.backoff = min(max(2*one.backoff, minBackoff), maxBackoff)
		one.due = now.Add(one.backoff)
	}
	if lost {
		one.losses++
	}
	s.noteLink(one, of, now, l)
	one.last = now
	return alone
}

// noteLink counts cut connections of one message alone. An outage begins with cuts too, but goes on with failures to
// connect.
func (s *suspects) noteLink(one *suspect, of recent.Message, now time.Time, l link) {
	if l == disconnected {
		s.disconnected = now
	}
	if l != cut {
		return
	}
	if one.cuts == 0 || s.cut != of || !s.disconnected.Before(one.firstCut) {
		one.cuts, one.firstCut = 0, now
	}
	s.cut = of
	one.cuts++
	// If the next message has cuts too, perhaps no message causes them: a proxy can accept connections for a server
	// that is unavailable.
	longest := maxRefusal << min(s.inVain, maxDoublings)
	if !one.hopeless && one.cuts > maxInterruptions && now.Sub(one.firstCut) >= longest {
		one.hopeless = true
		s.inVain++
	}
}

// condemned reports whether a message is refused for good: others pass and it does not, or it ends the connection.
func (s *suspects) condemned(of recent.Message, now time.Time) bool {
	one := s.Get(of)
	return one != nil && (one.hopeless || one.losses > maxInterruptions ||
		one.refusals >= minRefusals && now.Sub(one.first) >= maxRefusal)
}

// due returns when a message that was refused while others passed may try again.
func (s *suspects) due(of recent.Message) (at time.Time) {
	if one := s.Get(of); one != nil {
		at = one.due
	}
	return at
}

// passing reports whether a message is refused while others pass, or passed a short time ago.
func (s *suspects) passing(of recent.Message, now time.Time) bool {
	one := s.Get(of)
	return one != nil && one.refusals > 1 && now.Sub(s.others) < idle
}

// passed notes that a message passed.
func (s *suspects) passed(of recent.Message, now time.Time) {
	s.others, s.inVain = now, 0
	if one := s.Get(of); one != nil && one.interruptions > 0 {
		*one = suspect{interruptions: one.interruptions}
	} else {
		s.Forget(of)
	}
	s.Sweep(now)
}

// interrupted notes that work on a message was interrupted, and reports whether it was too often.
func (s *suspects) interrupted(of recent.Message, now time.Time) bool {
	one := s.Note(of, now)
	one.last = now
	one.interruptions++
	return one.interruptions > maxInterruptions
}
