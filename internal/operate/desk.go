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
