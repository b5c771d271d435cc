// Package webhooks is the consumer that the examples share: it stores GitHub's webhook events once each and emits a
// summary of every stored event. Its input is real payloads, to which it adds faults by a seed; its tally is computed
// from what was published, stored, received and set aside, never assumed.
package webhooks
