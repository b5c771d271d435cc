// Package foreign has what the library knows of other modules without importing them: types by their names, fields that
// are not exported, and errors that have nothing but a text. The rows of errors are here. Those of publishers are in
// package destination, of subscribers in package hold, of the router in package decorated, which alone uses unsafe; and
// package chain has the private keys of contexts.
//
// One rule holds for versions. A row names a module path without the element of its major version, and the major
// versions for which a test has shown that the row is right. A row is used for every major version: a check that no
// longer checks would be worse. A major version that the row does not name, and a field that is not there, are misses.
// Each miss is logged once in a process (foreign_unknown), and docs/events.md says what to do.
//
// Each row has a test with the real module, in its package, or for modules that the library does not require, in
// lab/proofs/foreign. Check of package facts fails for a row without one.
package foreign
