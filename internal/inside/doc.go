// Package inside is what Spillway's own packages call of a letters.Store and of campaigns.Campaigns, and a user does
// not: leases, what metrics ask, and the record of what other tables keep. letters.Store.Inside and
// campaigns.Campaigns.Inside return it, so that the compiler checks it. A program outside of Spillway cannot name these
// types, and nothing here is promised to it.
package inside
