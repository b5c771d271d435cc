package operate

import (
	"strings"

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
