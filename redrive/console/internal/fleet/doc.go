// Package fleet looks at several services at once. A service that does not answer holds up no other, and piles up
// nothing: of each service at most one call of its access function and one read of its database are in the air.
package fleet
