package seal_test

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"flag"
	"os"
	"testing"

	"github.com/watermill-spillway/spillway/internal/codec/envelope"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/seal"
)

var update = flag.Bool("update", false, "write testdata/envelopes.json")

// known is a known answer. Bytes are in hex.
type known struct {
	Name     string            `json:"name"`
	KeyID    string            `json:"key_id"`
	Secret   string            `json:"secret"`
	Topic    string            `json:"topic"`
	ID       string            `json:"id"`
	Redrives int               `json:"redrives"`
	NoBytes  bool              `json:"payload_is_nil"`
	Payload  string            `json:"payload"`
	Metadata map[string]string `json:"metadata"`
	Plain    string            `json:"plain"` // what is encrypted
	Envelope string            `json:"envelope"`
}

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	return testkit.Must(hex.DecodeString(s))
}

// Feature D14: envelopes of earlier versions open for ever. The bytes are also computed here, without the package, from
// the page of its documentation.
func TestKnownAnswers(t *testing.T) {
	const file = "testdata/envelopes.json"
	text := testkit.Must(os.ReadFile(file))
	var all []known
	testkit.NoError(t, json.Unmarshal(text, &all))
	for i := range all {
		k := &all[i]
		want := envelope.Content{Metadata: k.Metadata}
		if !k.NoBytes {
			want.Payload = unhex(t, k.Payload)
		}
		b := envelope.Binding{Topic: k.Topic, ID: k.ID, Redrives: k.Redrives}
		keys := testkit.Must(seal.ParseKeyring(k.KeyID + " " + base64.StdEncoding.EncodeToString(unhex(t, k.Secret))))
		s := with(t, keys)
		if *update {
			sealed := testkit.Must(s.Seal(t.Context(), b, want))
			k.Envelope = hex.EncodeToString(sealed)
		}
		sealed := unhex(t, k.Envelope)
		got, err := s.Open(t.Context(), b, sealed)
		testkit.Check(t, err == nil && equal(got, want), "%s: %q, %v", k.Name, got, err)
		mine := byHand(t, k, sealed)
		testkit.Check(t, bytes.Equal(mine, sealed), "%s: by hand %x\nwant    %x", k.Name, mine, sealed)
	}
	if *update {
		text, _ := json.MarshalIndent(all, "", "  ")
		testkit.NoError(t, os.WriteFile(file, append(text, '\n'), 0o644))
	}
}

// byHand makes the envelope with the nonce of another one. All fields of the known answers are shorter than 128 bytes.
func byHand(t *testing.T, k *known, with []byte) []byte {
	field := func(s string) string { return string(rune(len(s))) + s }
	binding := field(k.Topic) + field(k.ID) + string(rune(k.Redrives))
	plain := unhex(t, k.Plain)
	content, _ := hkdf.Key(sha256.New, unhex(t, k.Secret), nil, "spillway letter 1 content", 32)
	fingerprint, _ := hkdf.Key(sha256.New, unhex(t, k.Secret), nil, "spillway letter 1 fingerprint", 32)
	mac := hmac.New(sha256.New, fingerprint)
	mac.Write([]byte(binding))
	mac.Write(plain)
	at := 2 + len(k.KeyID) + 1 + 16
	nonce := with[at : at+12]
	header := []byte("\x01" + field(k.KeyID) + "\x00" + string(mac.Sum(nil)[:16]) + string(nonce) + binding)
	block := testkit.Must(aes.NewCipher(content))
	gcm := testkit.Must(cipher.NewGCM(block))
	return append(bytes.Clone(header), gcm.Seal(nil, nonce, plain, header)...)
}
