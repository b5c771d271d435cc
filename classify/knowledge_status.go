package classify

import (
	"errors"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/watermill-spillway/spillway/internal/upstream/foreign"
)

// askStatus judges errors that carry the status of an answer: of HTTP by their methods, and of gRPC without importing
// it.
func askStatus(err error) (Verdict, bool) {
	switch e := err.(type) {
	case interface{ StatusCode() int }:
		return askHTTP(e.StatusCode(), err)
	case interface{ HTTPStatusCode() int }: // of the AWS SDK, among others
		return askHTTP(e.HTTPStatusCode(), err)
	}
	v := reflect.ValueOf(err)
	if v.Kind() == reflect.Pointer && v.IsNil() {
		return Verdict{}, false
	}
	// The names of methods must be constants: for others the linker keeps all methods of the program.
	if status, ok := result(v.MethodByName("GRPCStatus")); ok {
		code, _ := result(status.MethodByName("Code"))
		return askGRPC(code)
	}
	if foreign.ErrorOf(err).Kind == foreign.RPC {
		code, _ := result(v.MethodByName("Code"))
		return askGRPC(code)
	}
	return Verdict{}, false
}

// askHTTP judges the status codes of RFC 9110 and RFC 6585 that pass with time. One that says when to come back is
// about the service.
func askHTTP(status int, err error) (Verdict, bool) {
	switch status {
	case 429, 503:
		if e, ok := err.(interface{ RetryAfter() time.Duration }); ok && e.RetryAfter() > 0 {
			return Verdict{Class: ClassTransient, RetryAfter: e.RetryAfter(), Unavailable: true}, true
		}
		return transient, true
	case 408, 425, 502, 504:
		return transient, true
	}
	return Verdict{}, false
}

// askGRPC judges a status code of gRPC (google.golang.org/grpc/codes).
func askGRPC(code reflect.Value) (Verdict, bool) {
	if !code.IsValid() || !code.CanUint() { // a Value without a code is not valid
		return Verdict{}, false
	}
	switch code.Uint() {
	case 14: // unavailable
		return unavailable, true
	case 1, 4, 8, 10: // cancelled, deadline exceeded, resource exhausted, aborted
		return transient, true
	}
	return Verdict{}, false
}

// result calls a method without arguments that has one result. It reports false if there is no such method.
func result(method reflect.Value) (reflect.Value, bool) {
	if !method.IsValid() || method.Type().NumIn() != 0 || method.Type().NumOut() != 1 {
		return reflect.Value{}, false
	}
	v := method.Call(nil)[0]
	return v, !(v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface) || !v.IsNil()
}

// maxHeader bounds a Retry-After header: more seconds than a Duration holds are as good as this many.
const maxHeader = 1 << 31

// parseRetryAfter reads a Retry-After header (RFC 9110, 10.2.3), and returns 0 if it says nothing.
func parseRetryAfter(value string, now time.Time) time.Duration {
	value = strings.TrimSpace(value)
	if seconds, err := strconv.ParseUint(value, 10, 64); err == nil || errors.Is(err, strconv.ErrRange) {
		return time.Duration(min(seconds, maxHeader)) * time.Second
	}
	// as http.ParseTime does
	for _, layout := range []string{"Mon, 02 Jan 2006 15:04:05 GMT", time.RFC850, time.ANSIC} {
		if at, err := time.Parse(layout, value); err == nil {
			return max(at.Sub(now), 0)
		}
	}
	return 0
}

// askRetry judges what libraries for retries, breakers and limits say, without importing one.
func askRetry(err error) (Verdict, bool) {
	switch e := foreign.ErrorOf(err); e.Kind {
	case foreign.Plain:
		return transient, foreign.Says(err.Error(), foreign.Passes)
	case foreign.Permanent:
		return permanent, true
	case foreign.RetryAfter:
		return Verdict{Class: ClassTransient, RetryAfter: e.Wait()}, true
	}
	return Verdict{}, false
}

// askDatabase judges errors of database drivers without importing one: PostgreSQL's by their SQLSTATE method (pgx and
// lib/pq both have it), MySQL's and SQLite's by the types of their drivers' errors.
func askDatabase(err error) (Verdict, bool) {
	if e, ok := err.(interface{ SQLState() string }); ok {
		return askSQLState(e.SQLState())
	}
	switch e := foreign.ErrorOf(err); e.Kind {
	case foreign.MySQL:
		class, ok := mysqlNumbers[e.Code()]
		return Verdict{Class: class}, ok
	case foreign.SQLite:
		class, ok := sqliteCodes[e.Code()]
		return Verdict{Class: class}, ok
	}
	return Verdict{}, false
}

// askSQLState looks a whole code up first, then its class, the first two characters (PostgreSQL's Appendix A).
func askSQLState(state string) (Verdict, bool) {
	if len(state) != 5 {
		return Verdict{}, false
	}
	class, ok := sqlStates[state]
	if !ok {
		class, ok = sqlStates[state[:2]]
	}
	return Verdict{Class: class}, ok
}

var sqlStates = map[string]Class{
	"08":    ClassTransient, // connection exception
	"21":    ClassPermanent, // cardinality violation
	"22":    ClassPermanent, // data exception
	"23":    ClassPermanent, // integrity constraint violation
	"23503": ClassUnknown,   // foreign key violation: the row referred to may be on its way
	"25006": ClassTransient, // read-only transaction: a failover is under way
	"25P03": ClassTransient, // the session was ended: idle in a transaction for too long
	"25P04": ClassTransient, // the session was ended: a transaction for too long
	"40":    ClassTransient, // transaction rollback: serialization failure, deadlock
	"40002": ClassPermanent, // transaction integrity constraint violation
	"42":    ClassPermanent, // syntax error or access rule violation
	"44":    ClassPermanent, // WITH CHECK OPTION violation
	"53":    ClassTransient, // insufficient resources
	"54":    ClassPermanent, // program limit exceeded
	"55":    ClassTransient, // object not in prerequisite state: in use, lock not available
	"57":    ClassTransient, // operator intervention: shutdown, cancelled statement
	"58":    ClassTransient, // system error
}

// mysqlNumbers follow MySQL's Server Error Message Reference and MariaDB's list of error codes.
var mysqlNumbers = map[int64]Class{
	1020: ClassTransient, // MariaDB: a row was changed since the transaction read it
	1021: ClassTransient, // disk full
	1037: ClassTransient, // out of memory
	1040: ClassTransient, // too many connections
	1041: ClassTransient, // out of resources
	1047: ClassTransient, // Galera: node not ready for application use
	1053: ClassTransient, // server shutdown in progress
	1158: ClassTransient, // network read error
	1159: ClassTransient, // network read timeout
	1160: ClassTransient, // network write error
	1161: ClassTransient, // network write timeout
	1203: ClassTransient, // user has too many connections
	1205: ClassTransient, // lock wait timeout
	1213: ClassTransient, // deadlock
	1290: ClassTransient, // read-only server: a failover is under way
	1317: ClassTransient, // query interrupted
	1613: ClassTransient, // transaction branch rolled back: it took too long
	1614: ClassTransient, // transaction branch rolled back: deadlock
	1836: ClassTransient, // read-only mode
	1969: ClassTransient, // MariaDB: statement time exceeded
	2006: ClassTransient, // server has gone away
	2013: ClassTransient, // connection lost during query
	3101: ClassTransient, // group replication: rolled back because of another transaction
	3024: ClassTransient, // execution time exceeded
	3572: ClassTransient, // NOWAIT: lock not available

	1044: ClassPermanent, // access denied to database
	1048: ClassPermanent, // column cannot be null
	1054: ClassPermanent, // unknown column
	1062: ClassPermanent, // duplicate entry
	1064: ClassPermanent, // syntax error
	1118: ClassPermanent, // row too large
	1136: ClassPermanent, // column count
	1142: ClassPermanent, // command denied to user
	1146: ClassPermanent, // no such table
	1153: ClassPermanent, // larger than max_allowed_packet
	1264: ClassPermanent, // out of range
	1292: ClassPermanent, // incorrect value
	1364: ClassPermanent, // no default value
	1366: ClassPermanent, // incorrect value for column
	1406: ClassPermanent, // data too long
	3140: ClassPermanent, // invalid JSON text
	3819: ClassPermanent, // check constraint
	4025: ClassPermanent, // MariaDB: check constraint
}

var sqliteCodes = map[int64]Class{
	5:  ClassTransient, // busy
	6:  ClassTransient, // locked
	7:  ClassTransient, // no memory
	9:  ClassTransient, // interrupted
	10: ClassTransient, // input/output error
	13: ClassTransient, // disk full
	14: ClassTransient, // cannot open
	15: ClassTransient, // locking protocol
	17: ClassTransient, // schema changed
	8:  ClassPermanent, // read only
	18: ClassPermanent, // too big
	19: ClassPermanent, // constraint
	20: ClassPermanent, // mismatch
	25: ClassPermanent, // parameter out of range
}
