// Package batcher lets callers that write at the same time share one statement.
//
// A call that is alone writes at once, with its own context, in its own goroutine: no wait is added. Calls that come
// while another one writes wait for it, and then go together. So the size of a batch follows from how busy the database
// is, and no time has to be chosen.
//
// If a batch fails, or panics, nothing of it is written, and each of its calls writes for itself, with its own context:
// one bad row does not fail the others, and each caller gets its own error.
//
// The caller keeps out what must not be batched: a write within a transaction of the caller's.
package batcher
