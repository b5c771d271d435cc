// Package backlog fills a store with dead letters, up to millions of them, for what is measured with many letters
// waiting.
package backlog
