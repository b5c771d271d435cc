package operate

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/watermill-spillway/spillway/redrive/letters"
)

// VersionOf changes whenever something happens to a letter.
func VersionOf(l letters.Letter) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %s %d %d %s", l.Seq, l.Status, l.Seen, l.MarkedAt.UnixMicro(),
		l.Original.Payload))
	return hex.EncodeToString(sum[:16])
}
