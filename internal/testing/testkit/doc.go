// Package testkit holds what tests of several packages need: conditions that are polled, contexts that end on demand,
// random sources that can be repeated, a logger that keeps its lines, and a router that runs for a test. Package
// databases, beside it, gives a test a database of its own, package wire stands between it and its driver, and package
// child is a process that a test kills.
//
// A test judges what happened, never how long it took: it waits for a condition with [Eventually], whose deadline is so
// long that only a hang exceeds it. A test that must not see something happen gives it a moment to happen; on a slow
// machine such a test shows less, and never fails. Time itself is tested in a bubble of package testing/synctest.
package testkit
