package letters

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
)

// ownIdentity is the poison.Letter.Identity of a letter: of the number of its body and of the microsecond in which it
// arrived first, which never change. Another letter's cannot be guessed from one's own number or from what a message
// says. The identity of the row is made of the content, and changes when the letter is sealed or erased.
func ownIdentity(body, storedAt int64) string {
	b := binary.BigEndian.AppendUint64([]byte("spillway letter"), uint64(body))
	sum := sha256.Sum256(binary.BigEndian.AppendUint64(b, uint64(storedAt)))
	return hex.EncodeToString(sum[:16])
}
