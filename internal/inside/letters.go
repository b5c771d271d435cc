// Package inside is what Spillway's own packages call of a letters.Store and of campaigns.Campaigns, and a user does
// not: leases, what metrics ask, and the record of what other tables keep. letters.Store.Inside and
// campaigns.Campaigns.Inside return it, so that the compiler checks it. A program outside of Spillway cannot name these
// types, and nothing here is promised to it.
package inside

import (
	"context"
	"database/sql"
	"time"

	"github.com/watermill-spillway/spillway/seal"
)

// Letters is the inside of a letters.Store. The type parameters are types of package letters, which imports this one.
type Letters[Filter, Letter, Act, Rule any, Status comparable] interface {
	// DB is the database that the Store is on, for tables that stand beside its own.
	DB() *sql.DB
	// Service is the service of the Store.
	Service() string

	Claims[Filter, Letter, Act, Status]

	// CountTopics returns the number of letters that f chooses by their origin topic, which may be empty.
	CountTopics(ctx context.Context, f Filter) (map[string]int, error)
	// Totals returns the numbers of all letters of the service. They are kept with the letters: none is counted.
	Totals(ctx context.Context) (map[Status]int, error)
	// Numbers returns the causes whose kept numbers are not those of their letters, and repairs them if asked to. Each
	// service does so by itself once an hour.
	Numbers(ctx context.Context, repair bool) (wrong []WrongNumbers, err error)
	// Numbered returns an error with the remedy if the database would give new letters or events the numbers of rows
	// that are there, as after a restore of data alone.
	Numbered(ctx context.Context) error
	// OldestWaiting returns, by cause, when the waiting letter that was stored first failed first. A cause without a
	// waiting letter has no entry. Each cause costs a look into an index, however many letters it has.
	OldestWaiting(ctx context.Context, causes ...string) (map[string]time.Time, error)
	// CausesBySize returns the causes of the letters that f chooses in the order of letters.Store.Groups, without the
	// first skip of them, at most most. Groups describes letters.MaxListed of them, by Filter.Causes.
	CausesBySize(ctx context.Context, f Filter, skip, most int) ([]string, error)
	// CausesBegin returns the causes of the service whose hash begins so, at most most, in the order of their hashes.
	CausesBegin(ctx context.Context, begin string, most int) ([]string, error)
	// Arrivals returns the arrivals of each cause, in the order of the causes, at most letters.MaxListed of them. A
	// letter that arrives again counts each time.
	Arrivals(ctx context.Context, causes ...string) ([]Arrivals, error)

	// OpenWith is letters.Store.Open with other keys.
	OpenWith(ctx context.Context, sealer *seal.Sealer, l Letter) (opened Letter, err error)
	// SealKeys counts the letters of the service by the key that they are sealed with, whatever their status, in the
	// order of the keys. It reads all letters, without their bodies. A key that has no letters here, and none in a
	// topic, is needed no more.
	SealKeys(ctx context.Context) ([]KeyCount, error)

	// Reseal is letters.Store.Reseal, with a report. Letters that do not open are no error.
	Reseal(ctx context.Context, f Filter, act Act, options ResealOptions) (Resealed, error)
	// Retention returns what deletes letters by rules.
	Retention(rules []Rule, act Act) (Retention, error)

	// Record writes an event for each of the letters, at most letters.MaxLimit, and changes nothing else. kind is
	// selected, edited or shown: the Store records the other kinds. tx is a transaction on the Store's database, or
	// nil. Record returns the Seqs of the letters that are there.
	Record(ctx context.Context, tx *sql.Tx, kind string, act Act, seqs ...int64) (recorded []int64, err error)
	// RecordErasure writes the event erasure: a program erased a person's data, or is about to. act.Detail says by what
	// it looked for them, without a value of the person, and what it found.
	RecordErasure(ctx context.Context, act Act) error
	// RecordSequence writes the event sequence, in a transaction on the Store's database. act.Detail says what was
	// decided about how many messages, without their key.
	RecordSequence(ctx context.Context, tx *sql.Tx, messageID string, act Act) error
	// RecordPolicy writes the event policy, in a transaction on the Store's database. act.Detail says what was done
	// with which policy.
	RecordPolicy(ctx context.Context, tx *sql.Tx, act Act) error
	// RecordFreeze writes the event freeze. act.Detail says what was done with which handler.
	RecordFreeze(ctx context.Context, act Act) error
	// CameBack returns those of the letters, at most letters.MaxListed, whose message a redrive brought back before, of
	// this service or of another program, as far as the letter or the record says it. A letter without a message id is
	// among them: nothing would say it of the next one. tx may be nil.
	CameBack(ctx context.Context, tx *sql.Tx, seqs ...int64) (map[int64]bool, error)
	// Redriven returns what became of the letters of a cause that were redriven since a time, by the id of the redrive.
	// It learns of the latest 20 redrives first.
	Redriven(ctx context.Context, cause string, since time.Time) (map[string]Outcome, error)
	// KeepsWaiting is how long letters that wait are kept by the rules of NewRetention in this process. 0 is for good.
	KeepsWaiting() time.Duration
	// Erase removes the payload, the metadata and all texts of the letters that f chooses.
	Erase(ctx context.Context, f Filter, act Act, options EraseOptions) (Erased, error)
}

// Claims is how drains and campaigns work on letters: claim a batch, publish it, settle the batch.
type Claims[Filter, Letter, Act any, Status comparable] interface {
	// LastSeq returns the greatest Seq in the table, or 0. As Filter.MaxSeq it leaves out letters that arrive later.
	LastSeq(ctx context.Context) (int64, error)
	// Free returns the Seqs of the first n letters, 1 to letters.MaxLimit, that f chooses and that have no lease.
	// Letters that another transaction is writing are among them. Their size may make it fewer than n.
	Free(ctx context.Context, f Filter, n int) ([]int64, error)
	// Claim leases those of the letters, at most letters.MaxLimit, that f still chooses, that have no lease, and that
	// no other transaction is writing at this moment. It reads them into memory: Free returns as many as may be.
	Claim(ctx context.Context, f Filter, seqs []int64, lease time.Duration) (Claim[Letter], error)
	// Renew lets the lease last for the given time from now on. It returns the letters that still have it.
	Renew(ctx context.Context, lease time.Duration, c Claim[Letter]) (still Claim[Letter], err error)
	// Settle gives claimed letters, at most letters.MaxLimit, their new status, records act and ends their leases, in
	// one transaction. It returns the Seqs of those that were settled: the leases of the others are lost. After an
	// error none is settled.
	Settle(ctx context.Context, status Status, act Act, claims ...Claim[Letter]) (settled []int64, err error)
	// Release ends the leases of letters and leaves the letters as they were. A lease that is lost is no error.
	Release(ctx context.Context, c Claim[Letter]) error
	// Postpone ends the lease of the one letter of c and puts the letter behind all others, with a new Seq. Without the
	// lease it changes nothing, and the error is letters.ErrLeaseLost.
	Postpone(ctx context.Context, c Claim[Letter]) error
	// BreakLeases takes letters away from the holders of their leases, and records it. A holder learns of it when it
	// settles or renews. What it published is published: break a lease only if its holder is gone. It returns the Seqs
	// of the letters whose leases it broke.
	BreakLeases(ctx context.Context, act Act, seqs ...int64) (broken []int64, err error)

	// HandleAgain lets the handler of a claimed letter run again although the idempotent receiver has applied its
	// message: it removes the receiver's key, whose id is the message's, and records it. What the handler wrote before
	// is written again then, and what it produces anew takes the place of the recorded outputs. It reports false if
	// there is no such key: then the handler runs anyway, or the receiver has other keys. Publish the letter after it.
	HandleAgain(ctx context.Context, l Letter, act Act) (removed bool, err error)
	// CheckKeys returns an error if the idempotent receiver does not keep its keys in the database of the letters.
	CheckKeys(ctx context.Context) error
	// Learn looks for what became of the letters that a drain or campaign redrove, marks them and returns the numbers.
	//   - A letter failed again if another letter arrived with the id of the redrive that names it, or has its message's
	//     id. So it did if the same one arrived again.
	//   - A letter succeeded if the idempotent receiver applied its message: the receiver's keys are in the same database,
	//     of the same service and handler, and the key of the message is its id. A message with outputs succeeded when they
	//     are published. The receiver marks that within a spillway.Channel. Elsewhere it is believed 5 minutes after the
	//     message was applied, but never of a letter of reason output_undeliverable, whose message was applied before.
	//
	// Otherwise another program marks it, by letters.Store.MarkAll. Live traffic does nothing for it: Learn looks keys
	// up.
	Learn(ctx context.Context, redriveID string) (Outcome, error)
}

// Claim is letters under one lease.
type Claim[Letter any] struct {
	// Token proves the lease.
	Token string
	// Until is when others may take the letters, by this process's clock and a little early. The lease itself goes by
	// the database's clock. A letter stays with its holder until another takes it.
	Until   time.Time
	Letters []*Letter
}

// Of is the claim of some of the letters.
func (c Claim[Letter]) Of(some ...*Letter) Claim[Letter] {
	c.Letters = some
	return c
}

// Outcome is what became of the letters of a redrive.
type Outcome struct {
	// Redriven is the number of letters that were published, and not heard of since.
	Redriven int
	// Succeeded is the number of letters whose messages were handled.
	Succeeded int
	// FailedAgain is the number of letters whose messages became dead letters again.
	FailedAgain int
}

// Arrivals is how often letters of a cause arrived in each minute of the last hour.
type Arrivals struct {
	// Cause is the hash of the cause.
	Cause string
	// From is the begin of the first minute.
	From time.Time
	// PerMinute are the numbers of arrivals, the oldest minute first. The last minute is the current one: it is not
	// over yet.
	PerMinute [60]int
}

// WrongNumbers are those of a cause whose letters were deleted by hand, or came out of a backup without their numbers.
type WrongNumbers struct {
	Cause string
	// Letters are there, and so many were Counted.
	Letters, Counted int
}

// KeyCount is the number of letters that are sealed with a key.
type KeyCount struct {
	// Key is the id of the key. It is empty for letters that are not sealed, and ? for sealed letters that do not say.
	Key     string `json:"key"`
	Letters int    `json:"letters"`
}

// Retention deletes letters by rules.
type Retention interface {
	// Due returns how many letters each rule would delete now: a dry run. Letters that have a lease are among them.
	Due(ctx context.Context) (rules []int, err error)
	// Trim deletes the letters that are past their retention now, and returns how many each rule deleted, also with an
	// error.
	Trim(ctx context.Context) (rules []int, err error)
}

// ResealOptions are options of Reseal.
type ResealOptions struct {
	// Pause is the time between two transactions, so that live traffic goes first. Default: none.
	Pause time.Duration
	// Progress is called with what was done so far, after each transaction. Default: none.
	Progress func(Resealed)
}

// Resealed is what Reseal did, also if it ended with an error.
type Resealed struct {
	// Key is the id of the current key.
	Key string `json:"key"`
	// Resealed counts the letters that have the current key now and had another one, or none.
	Resealed int `json:"resealed"`
	// Closed counts the letters that do not open. They stay as they are.
	Closed int `json:"closed"`
	// Why are the errors of the first Closed letters, at most 20. Each names the letter and its key.
	Why []string `json:"why,omitempty"`
}

// EraseOptions are options of Erase.
type EraseOptions struct {
	// ForgetIDs replaces the ids of the messages by hashes, in the letters and in their events, for ids that name a
	// person. The hash of an id that can be guessed can be guessed too. Default: ids stay, so that the record can be
	// searched by them.
	ForgetIDs bool
	// Texts must not stay in the reasons and details of the events of the letters. The word erased takes their place.
	// Texts of fewer than 4 bytes are replaced only if they are all of it. Default: none.
	Texts []string
	// Before is called with at most 200 letters before they are erased, outside of any transaction: their Seqs and the
	// ids of their messages. Letters that have a lease are among them. An error ends Erase. Default: none.
	Before func(ctx context.Context, seqs []int64, messageIDs []string) error
	// Progress is called after each transaction with what was done so far. Default: none.
	Progress func(done Erased)
}

// Erased is what Erase did.
type Erased struct {
	// Letters is the number of letters that were erased.
	Letters int
	// InHand is the number of letters that stay because they have a lease, or another transaction was writing them.
	// Erase them by another call when the lease is over.
	InHand int
}

// EventKinds are the kinds of letters.Event: the constants of letters.EventKind.
var EventKinds = []string{"stored", "arrived_again", "selected", "edited", "waiting", "redriven", "quarantined",
	"refused", "discarded", "succeeded", "failed_again", "lease_broken", "key_removed", "shown", "purged", "erased",
	"erasure", "resealed", "sequence", "policy", "freeze"}
