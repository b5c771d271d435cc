// Package mysql knows what is particular to MySQL and MariaDB: their SQL, their catalog, and what their errors mean.
// Any database/sql driver will do whose errors have the shape of those of github.com/go-sql-driver/mysql.
package mysql

import (
	"github.com/watermill-spillway/spillway/internal/causes"
	"github.com/watermill-spillway/spillway/internal/foreign"
)

// The errors that a store acts on (MySQL's Server Error Message Reference, the same in MariaDB).
const (
	// Duplicate says that the key of a row is there already.
	Duplicate = 1062
	// NotLocked says that the session has locked tables, and not this one.
	NotLocked = 1100
	// RowTooLarge says that a row, or a value of it, is larger than InnoDB takes.
	RowTooLarge = 1118
	// PacketTooLarge says that a statement, or a row, is larger than max_allowed_packet.
	PacketTooLarge = 1153
	// LockTimeout says that another transaction held a lock for longer than innodb_lock_wait_timeout. The statement is
	// undone and, where innodb_rollback_on_timeout is set, the transaction too.
	LockTimeout = 1205
	// Deadlock says that the whole transaction was undone, because another one and this one waited for each other.
	Deadlock = 1213
	// NoSavepoint says that a savepoint is not there: the transaction that it was set in has ended.
	NoSavepoint = 1305
)

// Number returns the number of the server's error in err, or 0. The shape of the error is what tells, as in package
// classify: a pointer to a struct named MySQLError with a field Number.
func Number(err error) uint16 {
	for one := range causes.All(err) {
		if n := number(one); n != 0 {
			return n
		}
	}
	return 0
}

func number(err error) uint16 {
	e := foreign.ErrorOf(err)
	if n := e.Code(); e.Kind == foreign.MySQL && 0 < n && n <= 0xffff {
		return uint16(n)
	}
	return 0
}

// Undone reports whether the server undid the transaction because of another one, or may have: after a wait for a lock
// in vain.
func Undone(err error) bool {
	n := Number(err)
	return n == Deadlock || n == LockTimeout
}
