// Package frontdoor_test tests the channel as a whole, by what package spillway exports: all parts together, on one
// router.
package frontdoor_test
