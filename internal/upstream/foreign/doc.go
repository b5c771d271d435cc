// Package foreign is the one room for what the library knows of other modules without importing them: types by their
// names, fields that are not exported, private keys of contexts, and errors that have nothing but a text.
//
// One place uses unsafe: Open. The router wraps each subscriber in a decorator of Watermill's before any other code
// sees it, so without Open the RedeliveryTime of no subscriber is known, Spillway's own included.
//
// One rule holds for versions. A row names a module path without the element of its major version, and the major
// versions for which a test has shown that the row is right. A row is used for every major version: a check that no
// longer checks would be worse. A major version that the row does not name, and a field that is not there, are misses.
// Each miss is logged once in a process (foreign_unknown), and docs/events.md says what to do.
//
// Each row has a test with the real module: facts_test.go here, or, for modules that the library does not require, the
// tests in lab/proofs/foreign. TestRowsHaveFacts fails for a row without one.
package foreign
