package main

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func Example() {
	main()
	// Output:
	// invoice for order-1
	// 1 dead letter(s) in orders.dlq: no such customer (no_customer)
	// redriven: 1
	// invoice for order-2
}
