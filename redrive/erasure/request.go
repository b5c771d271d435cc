package erasure

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/watermill-spillway/spillway/internal/boundedtext"
	"github.com/watermill-spillway/spillway/internal/hidden"
	"github.com/watermill-spillway/spillway/internal/sqlstore/delayed/waiting"
	"github.com/watermill-spillway/spillway/internal/sqlstore/keytable"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Stores are where a person's data can be.
type Stores struct {
	// Letters keeps the dead letters, and the record of the erasure. Required.
	Letters *letters.Store
	// Delayed keeps messages that wait: a *delay.Store. Default: none is searched.
	Delayed hidden.Holder[*waiting.Table]
	// Keys keeps the keys of the receiver, and beside them messages that wait in the order of their key: a store of
	// idempotency.NewStore or of pgxstore.New. Default: none is searched.
	Keys interface{ Consumer(handler string) string }
	// Campaigns are those on Letters. Default: none are searched.
	Campaigns *campaigns.Campaigns
}

// Request says whose data are erased. Set IDs or Metadata.
type Request struct {
	// IDs are ids of messages, at most 500 of them.
	IDs []string
	// Metadata are keys of the messages' metadata with the values that they must have, byte for byte. All of them must
	// be there.
	Metadata map[string]string
	// RemoveKeys removes the keys of the messages. A message that comes again is then applied again. Default: false,
	// the keys stay without their outputs and fingerprints, and absorb such a message.
	RemoveKeys bool
	// ForgetIDs replaces the ids of the messages by hashes in the letters and in their record, and removes their keys,
	// for ids that name a person. Default: false.
	ForgetIDs bool
	// DryRun changes nothing.
	DryRun bool
	// Progress is called after each step with what was done so far. Default: none.
	Progress func(Report)

	// Act names who erases, and why. Both are required. The Reason must not have a value that is looked for. A Key
	// stands on record as the RedriveID of the erasure.
	campaigns.Act
}

// Report is what Erase did, or would do.
type Report struct {
	// Selector is the hash of what was looked for, as it is on record.
	Selector string `json:"selector"`
	// Letters are dead letters that were erased, and LettersInHand those that stay under a lease.
	Letters       int `json:"letters"`
	LettersInHand int `json:"letters_in_hand"`
	// Delayed are messages that waited, also in the order of their key, and were removed, and DelayedInHand those that
	// a relay is publishing.
	Delayed       int `json:"delayed"`
	DelayedInHand int `json:"delayed_in_hand"`
	// Keys are keys of the receiver that lost their outputs and fingerprints, or that were removed. KeysInHand are
	// those that a handler has leased.
	Keys       int `json:"keys"`
	KeysInHand int `json:"keys_in_hand"`
	// KeysUnsearched are keys with recorded outputs that were not looked into: by metadata, the keys are found of
	// messages that have a letter or wait. Those of other messages that succeeded are found by id alone. It is 0 if IDs
	// was set.
	KeysUnsearched int `json:"keys_unsearched"`
	// SealedUnsearched are sealed letters that do not match Metadata by what stays readable. What is sealed of them was
	// not looked into: erase by ids. It is 0 if IDs was set.
	SealedUnsearched int `json:"sealed_unsearched"`
	// Texts are texts of campaigns in which the values were replaced, or that were about erased letters.
	Texts int `json:"texts"`
	// CampaignsOpen are campaigns that have a value in their edit, and have not ended, or that are still selecting.
	CampaignsOpen []string `json:"campaigns_open,omitempty"`
}

// inHand returns how many things were found and left alone.
func (r *Report) inHand() int {
	return r.LettersInHand + r.DelayedInHand + r.KeysInHand + len(r.CampaignsOpen)
}

// ErrInHand is the error of data that are left alone because something works on them.
var ErrInHand = errors.New("erasure: some of it is in hand: run it again when leases are over and campaigns have ended")

func (s *Stores) validate() error {
	if s.Letters == nil {
		return errors.New("erasure: Stores.Letters is nil: the record of the erasure is there; check the error of " +
			"letters.NewStore")
	}
	if _, ok := s.Keys.(keytable.Keeper); s.Keys != nil && !ok {
		return fmt.Errorf("erasure: Stores.Keys is a %T: use one of idempotency.NewStore or pgxstore.New", s.Keys)
	}
	return nil
}

func (r *Request) validate() error {
	switch {
	case len(r.IDs) == 0 && len(r.Metadata) == 0:
		return errors.New("erasure: Request.IDs and Metadata are empty: say whose data are meant")
	case len(r.IDs) > 0 && len(r.Metadata) > 0:
		return errors.New("erasure: Request.IDs and Metadata are both set: set one, and call Erase twice")
	case len(r.IDs) > waiting.MaxIDs:
		return fmt.Errorf("erasure: Request.IDs lists %d ids, at most %d are possible: use several calls", len(r.IDs),
			waiting.MaxIDs)
	case len(r.Metadata) > letters.MaxListed:
		return fmt.Errorf("erasure: Request.Metadata has %d keys, at most %d are possible", len(r.Metadata),
			letters.MaxListed)
	case slices.Contains(r.IDs, ""):
		return errors.New("erasure: Request.IDs has an empty id: letters without an id are found by metadata")
	}
	for key, value := range r.Metadata {
		if key == "" || value == "" {
			return errors.New("erasure: Request.Metadata has an empty key or value: it would choose letters of others")
		}
	}
	for field, text := range map[string]string{"By": r.By, "Reason": r.Reason} {
		switch {
		case text == "" && r.DryRun: // nothing goes on record
		case text == "":
			return fmt.Errorf("erasure: Act.%s is empty: say who erases, and why; both are kept on record", field)
		case field == "Reason" && boundedtext.Erased(text, r.values()) != text:
			return errors.New("erasure: Act.Reason has a value that is to be erased, and the record would keep it: give the " +
				"number of the request instead")
		}
	}
	return nil
}

// values are what must not stay.
func (r *Request) values() []string {
	return slices.Sorted(slices.Values(append(slices.Collect(maps.Values(r.Metadata)), r.IDs...)))
}

// texts are the values that must not stay in what people wrote. An id stays unless it is to be forgotten.
func (r *Request) texts() []string {
	if len(r.IDs) > 0 && !r.ForgetIDs {
		return nil
	}
	return r.values()
}
