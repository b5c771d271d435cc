//go:build race

package wmamqp_test

func init() { raced = true }
