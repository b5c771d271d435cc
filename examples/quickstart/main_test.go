package main

import (
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// What docs/start.md shows: the second run brings back what the first one set aside, and the third finds nothing to do.
func Example() {
	folder := must(os.MkdirTemp("", "spillway-"))
	defer os.RemoveAll(folder)
	for _, fixed := range []bool{false, true, true} {
		run(filepath.Join(folder, "shop.db"), fixed)
	}
	// Output:
	// 1 dead letter(s) in orders.dlq: no such customer (no_customer)
	// invoices: 1
	// redriven: 1
	// invoices: 2
	// redriven: 0
	// invoices: 2
}
