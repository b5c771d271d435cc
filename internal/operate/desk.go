// Package operate is what a person on call does with dead letters, whatever face it has: the pages of redrive/console,
// the command redrive, and a program. A face reads a request, calls this package with the request and the person, and
// shows the data that come back. Nothing here knows HTTP, HTML or a terminal.
//
// So all faces have the same rights, ask for the same reasons, write the same record, and read the same words.
package operate

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/watermill-spillway/spillway/internal/hidden"
	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database"
	"github.com/watermill-spillway/spillway/privacy"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Desk is where persons work on the dead letters of a service. It keeps nothing, and is safe for concurrent use.
type Desk struct {
	// Store has the letters, and the record.
	Store *letters.Store
	// DB and Service are those of the Store. They are set where there is none: sequences and outages need no letters.
	DB      *sql.DB
	Service string
	// Campaigns are needed by what redrives, and by nothing else.
	Campaigns *campaigns.Campaigns
	// Masks are laid over all that came with messages, unless a person says why it must be seen as it is.
	Masks *privacy.Redactor
	// Codec decodes payloads, if the service has a decoder.
	Codec *Codec
}

// on is where the tables of the service are.
func (d *Desk) on() (*sql.DB, string) {
	if d.Store == nil {
		return d.DB, d.Service
	}
	return hidden.Of(d.Store).DB(), hidden.Of(d.Store).Service()
}

// MaxText is how long a reason, or the name of a person, may be, in bytes.
const MaxText = 1 << 10

// CheckReason returns an error for a reason that the record cannot keep.
func CheckReason(reason string) error {
	switch {
	case reason == "":
		return wrong("reason", "is empty: say why, for those who read the record later")
	case len(reason) > MaxText || strings.ContainsRune(reason, 0):
		return wrong("reason", "has %d bytes: it may have %d, and no NUL", len(reason), MaxText)
	}
	return nil
}

// allowed returns an error if a person may not do something, or does not say why.
func (p Person) allowed(right Right) error {
	if err := p.may(right); err != nil {
		return err
	}
	return CheckReason(p.Reason)
}

// VersionOf changes whenever something happens to a letter.
func VersionOf(l letters.Letter) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %s %d %d %s", l.Seq, l.Status, l.Seen, l.MarkedAt.UnixMicro(),
		l.Original.Payload))
	return hex.EncodeToString(sum[:16])
}

// Tables returns the versions of Spillway's tables in the database, by their component.
func (d *Desk) Tables(ctx context.Context) (versions map[string]int, err error) {
	db, _ := d.on()
	on, err := database.Detect(ctx, db)
	if err != nil {
		return nil, err
	}
	err = on.Query(ctx, func() { versions = map[string]int{} }, func(rows *sql.Rows) error {
		var component []byte
		var version int
		err := rows.Scan(&component, &version)
		versions[string(component)] = version
		return err
	}, `SELECT component, MAX(version) FROM spillway_schema GROUP BY component`)
	if err != nil {
		err = fmt.Errorf("read the versions of the tables: %w", err)
	}
	return versions, err
}

// MostCauses is how many causes a page has.
const MostCauses = letters.MaxListed

// Causes returns a page of the causes of the letters that a filter chooses, the largest first, without the first skip of
// them.
func (d *Desk) Causes(ctx context.Context, f letters.Filter, skip int) ([]letters.Group, error) {
	if f.Limit = min(f.Limit, MostCauses); skip == 0 {
		return d.Store.Groups(ctx, f)
	}
	some, err := hidden.Of(d.Store).CausesBySize(ctx, f, skip, f.Limit)
	if err != nil || len(some) == 0 {
		return nil, err
	}
	f.Causes = some
	return d.Store.Groups(ctx, f)
}

// CausesBegin returns the causes whose hash begins so, whatever became of their letters.
func (d *Desk) CausesBegin(ctx context.Context, begin string) ([]letters.Group, error) {
	some, err := hidden.Of(d.Store).CausesBegin(ctx, begin, MostCauses)
	if err != nil || len(some) == 0 {
		return nil, err
	}
	return d.Store.Groups(ctx, letters.Filter{Causes: some, Statuses: letters.Statuses(), Limit: MostCauses})
}

// CampaignsBegin returns campaigns as they are whose id begins so: all that there are, up to a page of them.
func (d *Desk) CampaignsBegin(ctx context.Context, begin string) (found []campaigns.Campaign, err error) {
	const most = 1000
	for l := (campaigns.List{Limit: most}); begin != ""; {
		page, err := d.Campaigns.List(ctx, l)
		if err != nil {
			return nil, err
		}
		for _, c := range page {
			if strings.HasPrefix(c.ID, begin) {
				found = append(found, c)
			}
		}
		if len(page) < most || len(found) >= most {
			break
		}
		l.Before, l.BeforeID = page[most-1].CreatedAt, page[most-1].ID
	}
	return found, nil
}

// Right is what a person may do. Each right includes those before it.
type Right uint8

// The rights. LookWithoutPayload sees no payload, and no value of metadata.
const (
	Nothing Right = iota
	LookWithoutPayload
	Look
	Act
	Approve
)

// Person is who asks for something, and why.
type Person struct {
	Name   string
	Reason string
	Right  Right
	// Key names the request of a program that may send it twice. What was done under a key is not done again.
	Key string
}

// act is what the record has of the person.
func (p Person) act() letters.Act { return letters.Act{By: p.Name, Reason: p.Reason} }

// Forbidden is the error of a request that the person has no right to.
type Forbidden struct{ Why string }

func (f *Forbidden) Error() string { return f.Why }

// may returns an error if the person has less than a right.
func (p Person) may(right Right) error {
	if p.Right >= right {
		return nil
	}
	return &Forbidden{fmt.Sprintf("the right of %q is too little", p.Name)}
}

// MaySearch returns an error if a person may not search by a filter. What a person may not see, the person may not
// search for either: the answers would say it, a character at a time. A person who may act may see it, on record.
func (p Person) MaySearch(f letters.Filter, masks *privacy.Redactor) error {
	switch {
	case p.Right >= Act:
		return nil
	case p.Right < Look && (f.Payload != "" || len(f.Metadata) > 0 || f.Description != ""):
		return &Forbidden{"You may not see payloads and metadata, so you cannot search in them, and not in texts of " +
			"errors either."}
	case f.Payload != "" && masks != privacy.None():
		return &Forbidden{"Values of payloads are masked for you, so you cannot search in payloads. That needs the " +
			"right to operate."}
	}
	for key, value := range f.Metadata {
		if masks.Metadata(key, value) != value {
			return &Forbidden{"The value of this metadata is masked for you, so you cannot search for it. That needs the " +
				"right to operate."}
		}
	}
	return nil
}

// RightNames are the rights as faces name them.
var RightNames = [...]string{"none", "look without payload", "look", "operate", "approve"}

func (r Right) String() string { return RightNames[min(int(r), len(RightNames)-1)] }

// What the ids of records begin with that are no campaigns: requests that a program may send twice.
const (
	shownBy   = "shown-"
	decidedBy = "sequence-"
	policyBy  = "policy-"
	heldBy    = "breaker-"
	erasedBy  = "erasure-"
)

// IsRequest reports whether the id of a record is that of a request, and of no campaign.
func IsRequest(id string) bool {
	return slices.ContainsFunc([]string{shownBy, decidedBy, policyBy, heldBy, erasedBy, causeBy},
		func(by string) bool { return strings.HasPrefix(id, by) })
}

// once is what the record has of the person, with the id of a request that may come twice. Without a key there is none.
func (p Person) once(by string) letters.Act {
	act := p.act()
	if p.Key != "" {
		act.RedriveID = by + p.Key
	}
	return act
}

// before returns the latest entry under the id of an act, or nil. It is an error if another request has it: of another
// person, for another reason, or not the same.
func (d *Desk) before(ctx context.Context, act letters.Act, same func(letters.Event) bool) (*letters.Event, error) {
	if act.RedriveID == "" || d.Store == nil {
		return nil, nil
	}
	events, err := d.Decided(ctx, act.RedriveID)
	if err != nil || len(events) == 0 {
		return nil, err
	}
	if e := &events[0]; e.By == act.By && e.Reason == act.Reason && same(*e) {
		return e, nil
	}
	return nil, fmt.Errorf("%w: %s is on record of another request", inside.ErrKeyReused, act.RedriveID)
}

// did reports whether the record has an entry under the id of an act. It is an error if another request has it.
func (d *Desk) did(ctx context.Context, act letters.Act) (bool, error) {
	e, err := d.before(ctx, act, func(e letters.Event) bool { return act.Detail == "" || e.Detail == act.Detail })
	return e != nil, err
}
