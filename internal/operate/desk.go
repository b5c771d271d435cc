package operate

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/watermill-spillway/spillway/internal/sqlstore/database"
	"github.com/watermill-spillway/spillway/privacy"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Desk is where persons work on the dead letters of a service. It keeps nothing, and is safe for concurrent use.
type Desk struct {
	Store *letters.Store
	// Campaigns are needed by what redrives, and by nothing else.
	Campaigns *campaigns.Campaigns
	// Masks are laid over all that came with messages, unless a person says why it must be seen as it is.
	Masks *privacy.Redactor
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
	on, err := database.Detect(ctx, d.Store.Inside().DB())
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
	some, err := d.Store.Inside().CausesBySize(ctx, f, skip, f.Limit)
	if err != nil || len(some) == 0 {
		return nil, err
	}
	f.Causes = some
	return d.Store.Groups(ctx, f)
}

// CausesBegin returns the causes whose hash begins so, whatever became of their letters.
func (d *Desk) CausesBegin(ctx context.Context, begin string) ([]letters.Group, error) {
	some, err := d.Store.Inside().CausesBegin(ctx, begin, MostCauses)
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
