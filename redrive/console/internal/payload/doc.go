// Package payload turns the bytes of a message into what a page shows of them: a tree of JSON, text, or lines of hex.
//
// The bytes come from strangers, and a person decides by what the page shows. So nothing is shown as what it is not:
//
//	JSON     numbers, strings and escapes are copied from the bytes, never through a float64 or a Go string. A key that
//	         stands twice is shown twice.
//	text     only what is UTF-8 without controls is taken for text by itself. What is not printable is escaped.
//	hex      all other bytes, with their offsets.
//
// Each view is bounded, in bytes, in nodes and in depth, and says when it is cut. The caller masks secrets before: half
// of a secret is not known as one.
package payload
