package testkit

import (
	"encoding/base64"
	"strings"
)

// Secret is the secret of a key of Keyring: 32 times the last letter of its id.
func Secret(id string) []byte { return []byte(strings.Repeat(id[len(id)-1:], 32)) }

// Keyring is the text of keys for seal.ParseKeyring. The first is the current one.
func Keyring(ids ...string) string {
	var text strings.Builder
	for _, id := range ids {
		text.WriteString(id + " " + base64.StdEncoding.EncodeToString(Secret(id)) + "\n")
	}
	return text.String()
}
