// Package mysql knows what the errors of MySQL and MariaDB mean. Any database/sql driver will do whose errors have the
// shape of those of github.com/go-sql-driver/mysql.
package mysql

import (
	"github.com/watermill-spillway/spillway/internal/errs"
	"github.com/watermill-spillway/spillway/internal/upstream/foreign"
)

// The errors that a store acts on (MySQL's Server Error Message Reference, the same in MariaDB).
const (
	// Changed says that a row was changed since the transaction first read (MariaDB's innodb_snapshot_isolation, above READ
	// COMMITTED). The whole transaction was undone, as after a deadlock.
	Changed = 1020
	// ReadOnlyTable says that InnoDB only reads (innodb_read_only), or this table.
	ReadOnlyTable = 1036
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
	// BranchTimeout and BranchDeadlock say that a transaction of the XA kind was undone.
	BranchTimeout, BranchDeadlock = 1613, 1614
	// StatementLog says that the server writes its binary log by statements, which InnoDB refuses at READ COMMITTED.
	StatementLog = 1665
	// RolledBack says that a plugin, such as group replication, had the transaction undone.
	RolledBack = 3101
)

// Number returns the number of the server's error in err, or 0. The shape of the error is what tells, as in package
// classify: a pointer to a struct named MySQLError with a field Number.
func Number(err error) uint16 {
	for one := range errs.All(err) {
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

// Gone reports whether the server undid the whole transaction because of another one. What is said after that would
// commit by itself.
func Gone(err error) bool {
	switch Number(err) {
	case Deadlock, Changed, BranchTimeout, BranchDeadlock, RolledBack:
		return true
	}
	return false
}

// Undone is Gone, or a wait for a lock in vain, after which the server may have undone the transaction.
func Undone(err error) bool { return Gone(err) || Number(err) == LockTimeout }

// StatementLogRemedy is what to do about a binary log of statements.
const StatementLogRemedy = "the server has binlog_format=STATEMENT, with which InnoDB refuses writes at READ COMMITTED: set " +
	"binlog_format=ROW or MIXED"
