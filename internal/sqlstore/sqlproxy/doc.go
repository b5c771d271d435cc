// Package sqlproxy gives a user a *sql.Tx, or a *sql.DB, in a transaction that an owner keeps. The owner has begun the
// transaction on a connection that it has to itself, and will end it. What the user runs goes to that connection, one
// statement at a time; what the user begins and ends there is the owner's to decide:
//
//	Pool.Begin   one *sql.Tx: its Commit and Rollback send nothing
//	Open         a *sql.DB: each *sql.Tx that begins there is a savepoint of the owner's
//
// The owner sees each statement before it runs, and each error. Once the owner has ended the Conn, late statements get
// an error that wraps sql.ErrTxDone.
//
// The driver's connection is used inside of (*sql.Conn).Raw alone, each statement in a call of its own. So database/sql
// keeps every promise that it makes to a driver, learns at once that a connection is bad, and unlocks it when a driver
// panics.
//
// It stays for two owners. On MySQL a deadlock that a handler ignores lets each statement after it commit by itself;
// without a look at the statements each claim would need five more round trips (autocommit off and on, a savepoint, its
// proof, the isolation), where it has one. In package wmsql many messages, and savepoints, share one transaction.
package sqlproxy
