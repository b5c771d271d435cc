// Package frontdoor_test tests the channel as a whole, by what package spillway exports: all parts together, on one
// router.
package e2e_test
