package seal_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/watermill-spillway/spillway/internal/outage"
	"github.com/watermill-spillway/spillway/seal"
)

func secret(b byte) []byte { return bytes.Repeat([]byte{b}, seal.SecretSize) }

func sealer(t testing.TB, config seal.Config, current string, ids ...string) *seal.Sealer {
	t.Helper()
	secrets := map[string][]byte{current: secret(current[len(current)-1])}
	for _, id := range ids {
		secrets[id] = secret(id[len(id)-1])
	}
	keys, err := seal.NewKeyring(current, secrets)
	if err != nil {
		t.Fatal(err)
	}
	s, err := seal.New(keys, config)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func equal(a, b seal.Content) bool {
	return bytes.Equal(a.Payload, b.Payload) && (a.Payload == nil) == (b.Payload == nil) && maps.Equal(a.Metadata, b.Metadata)
}

var (
	letter  = seal.Binding{Topic: "orders", ID: "4711", Redrives: 2}
	content = seal.Content{Payload: []byte(`{"card":"4111111111111111"}`), Metadata: map[string]string{"customer": "Ada Lovelace", "": "empty key"}}
)

// Feature D14: what is sealed opens as it was: any bytes, nil and empty payloads kept apart; it opens for no other letter, and the
// same content of the same letter has the same fingerprint, and no other has it.
func TestSealOpens(t *testing.T) {
	s := sealer(t, seal.Config{}, "k1")
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.Map(rapid.SliceOfN(rapid.Byte(), 0, 80), func(b []byte) string { return string(b) })
		draw := func(name string) (seal.Binding, seal.Content) {
			b := seal.Binding{Topic: text.Draw(t, name+" topic"), ID: text.Draw(t, name+" id"), Redrives: rapid.IntRange(0, 1<<20).Draw(t, name+" redrives")}
			c := seal.Content{Metadata: rapid.MapOfN(text, text, 0, 4).Draw(t, name+" metadata")}
			if rapid.Bool().Draw(t, name+" has payload") {
				c.Payload = append([]byte{}, text.Draw(t, name+" payload")...)
			}
			return b, c
		}
		b, c := draw("one")
		envelope, err := s.Seal(t.Context(), b, c)
		if err != nil {
			t.Fatal(err)
		}
		got, err := s.Open(t.Context(), b, envelope)
		if err != nil || !equal(got, c) {
			t.Fatalf("opened %q, %v, of %q", got, err, c)
		}
		again, _ := s.Seal(t.Context(), b, c)
		h, _ := seal.Parse(envelope)
		same, _ := seal.Parse(again)
		if bytes.Equal(again, envelope) || !bytes.Equal(h.Fingerprint, same.Fingerprint) || h.KeyID != "k1" || h.Binding != b {
			t.Fatalf("sealed twice: %+v and %+v", h, same)
		}
		other, oc := draw("other")
		if other != b {
			if _, err := s.Open(t.Context(), other, envelope); !errors.Is(err, seal.ErrOtherLetter) {
				t.Fatalf("opened as %+v: %v", other, err)
			}
		}
		otherEnvelope, _ := s.Seal(t.Context(), other, oc)
		if o, _ := seal.Parse(otherEnvelope); bytes.Equal(o.Fingerprint, h.Fingerprint) != (other == b && equal(oc, c)) {
			t.Fatalf("the fingerprints are equal: %t", bytes.Equal(o.Fingerprint, h.Fingerprint))
		}
	})
}

// Feature D14: an envelope in which any one bit is changed, that is cut anywhere, or that has a byte more, does not open, and nothing of it
// is returned.
func TestTampered(t *testing.T) {
	s := sealer(t, seal.Config{}, "k1", "k2", "k3", "kq", "j1", "i1", "o1", "c1", "K1", "s1", "k0", "k5", "k9")
	envelope, err := s.Seal(t.Context(), letter, content)
	if err != nil {
		t.Fatal(err)
	}
	check := func(what string, bad []byte) {
		t.Helper()
		c, err := s.Open(t.Context(), letter, bad)
		if err == nil || c.Payload != nil || c.Metadata != nil {
			t.Fatalf("%s: opened %q", what, c)
		}
		if !errors.Is(err, seal.ErrDamaged) && !errors.Is(err, seal.ErrUnknownKey) {
			t.Fatalf("%s: %v", what, err)
		}
	}
	for i := range envelope {
		for bit := range 8 {
			bad := bytes.Clone(envelope)
			bad[i] ^= 1 << bit
			check(fmt.Sprintf("byte %d, bit %d", i, bit), bad)
		}
		check(fmt.Sprintf("cut at %d", i), envelope[:i])
	}
	check("longer", append(bytes.Clone(envelope), 0))
	check("nothing", nil)
	for _, hidden := range []string{"4111111111111111", "Ada Lovelace", "customer"} {
		if strings.Contains(string(envelope), hidden) {
			t.Errorf("the envelope shows %q", hidden)
		}
	}
}

// Feature D14: the error names the key, and says what is wrong with it.
func TestKeysWrong(t *testing.T) {
	s := sealer(t, seal.Config{}, "orders-1")
	envelope, err := s.Seal(t.Context(), letter, content)
	if err != nil {
		t.Fatal(err)
	}
	lost := sealer(t, seal.Config{}, "orders-2")
	wrong, err := seal.NewKeyring("orders-1", map[string][]byte{"orders-1": secret('x')})
	if err != nil {
		t.Fatal(err)
	}
	mistaken, _ := seal.New(wrong, seal.Config{})
	away, _ := seal.New(failing{err: errors.New("dial kms: refused")}, seal.Config{})
	panics, _ := seal.New(failing{panics: true}, seal.Config{})
	short, _ := seal.New(failing{}, seal.Config{})
	for name, of := range map[string]struct {
		sealer *seal.Sealer
		want   error
	}{
		"lost":  {lost, seal.ErrUnknownKey},
		"wrong": {mistaken, seal.ErrDamaged},
		"none":  {nil, seal.ErrNoKeys},
		"away":  {away, seal.ErrUnavailable}, "panics": {panics, seal.ErrUnavailable}, "short": {short, seal.ErrUnavailable},
	} {
		_, err := of.sealer.Open(t.Context(), letter, envelope)
		var named *seal.Error
		if !errors.Is(err, of.want) || !errors.As(err, &named) || named.KeyID != "orders-1" || !strings.Contains(err.Error(), `"orders-1"`) {
			t.Errorf("%s: %v", name, err)
		}
		if of.want == seal.ErrUnavailable != outage.Away(err) {
			t.Errorf("%s: an outage: %t", name, outage.Away(err))
		}
		if of.want != seal.ErrUnavailable {
			continue
		}
		if _, err := of.sealer.Seal(t.Context(), letter, content); !errors.Is(err, seal.ErrUnavailable) || !outage.Away(err) {
			t.Errorf("%s: sealed: %v", name, err)
		}
	}
}

type failing struct {
	err    error
	panics bool
	hangs  bool
}

func (f failing) Current(ctx context.Context) (seal.Key, error) {
	secret, err := f.Find(ctx, "", nil)
	return seal.Key{ID: "orders-1", Secret: secret}, err
}

func (f failing) Find(ctx context.Context, _ string, _ []byte) ([]byte, error) {
	if f.panics {
		panic("kms")
	}
	if f.hangs {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return nil, f.err
}

// Feature D14: Keys that hang end with Config.Timeout.
func TestKeysHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := seal.New(failing{hangs: true}, seal.Config{Timeout: 3 * time.Second})
		begun := time.Now()
		if _, err := s.Seal(t.Context(), letter, content); !errors.Is(err, seal.ErrUnavailable) || time.Since(begun) != 3*time.Second {
			t.Errorf("%v after %s", err, time.Since(begun))
		}
	})
}

// Feature D14: Reseal changes the key, and nothing else: the fingerprint stays, so that the letter is recognised.
func TestReseal(t *testing.T) {
	before, after := sealer(t, seal.Config{}, "k1"), sealer(t, seal.Config{}, "k2", "k1")
	envelope, err := before.Seal(t.Context(), letter, content)
	if err != nil {
		t.Fatal(err)
	}
	if _, changed, err := before.Reseal(t.Context(), letter, envelope); err != nil || changed {
		t.Fatalf("resealed with its own key: %t, %v", changed, err)
	}
	resealed, changed, err := after.Reseal(t.Context(), letter, envelope)
	if err != nil || !changed {
		t.Fatal(changed, err)
	}
	was, _ := seal.Parse(envelope)
	is, _ := seal.Parse(resealed)
	if is.KeyID != "k2" || !bytes.Equal(is.Fingerprint, was.Fingerprint) {
		t.Errorf("resealed: %+v of %+v", is, was)
	}
	got, err := after.Open(t.Context(), letter, resealed)
	if err != nil || !equal(got, content) {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := before.Open(t.Context(), letter, resealed); !errors.Is(err, seal.ErrUnknownKey) {
		t.Errorf("the old keys: %v", err)
	}
	if _, _, err := after.Reseal(t.Context(), seal.Binding{}, envelope); !errors.Is(err, seal.ErrOtherLetter) {
		t.Errorf("of another letter: %v", err)
	}
}

func TestClear(t *testing.T) {
	for pattern, keys := range map[string]map[string]bool{
		"tenant":   {"tenant": true, "tenant-id": false, "": false},
		"tenant-*": {"tenant-id": true, "tenant-": true, "tenant": false},
		"*":        {"": true, "anything": true},
		"*-id":     {"tenant-id": true, "-id": true, "id": false, "tenant-id-x": false},
		"a*b*c":    {"abc": true, "a-b-b-c": true, "acb": false, "ab": false, "aXbYcZc": true},
		"a*ab":     {"ab": false, "aab": true},
	} {
		s := sealer(t, seal.Config{Clear: []string{"unused", pattern}}, "k1")
		for key, want := range keys {
			if s.IsClear(key) != want {
				t.Errorf("%q is of %q: %t", key, pattern, !want)
			}
		}
	}
}

func TestConfig(t *testing.T) {
	keys, _ := seal.NewKeyring("k1", map[string][]byte{"k1": secret(1)})
	for _, of := range []struct {
		keys   seal.Keys
		config seal.Config
		want   string
	}{
		{nil, seal.Config{}, "seal: New: the Keys are nil: give a Keyring, or Keys that ask a KMS"},
		{(*seal.Keyring)(nil), seal.Config{}, "seal: New: the Keys are nil: give a Keyring, or Keys that ask a KMS"},
		{keys, seal.Config{Timeout: -time.Second}, "seal: Config.Timeout is -1s: it must not be negative; 0 means 10 s"},
		{keys, seal.Config{Clear: []string{""}}, "seal: Config.Clear contains an empty key: name a metadata key, or use * for all"},
	} {
		if _, err := seal.New(of.keys, of.config); err == nil || err.Error() != of.want {
			t.Errorf("%v\nwant %s", err, of.want)
		}
	}
}

// FuzzOpen: no bytes panic, and none open that were not sealed.
func FuzzOpen(f *testing.F) {
	s := sealer(f, seal.Config{}, "k1")
	envelope, err := s.Seal(f.Context(), letter, content)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(envelope, "orders", "4711", 2)
	f.Add(envelope[:40], "", "", 0)
	raw, _ := hex.DecodeString("01026b3100" + strings.Repeat("00", 28) + "ffffffffffffffffff01")
	f.Add(raw, "orders", "4711", 0)
	f.Fuzz(func(t *testing.T, envelope []byte, topic, id string, redrives int) {
		b := seal.Binding{Topic: topic, ID: id, Redrives: redrives}
		c, err := s.Open(t.Context(), b, envelope)
		if err == nil && (b != letter || !equal(c, content)) {
			t.Fatalf("opened %q as %+v", c, b)
		}
		if h, err := seal.Parse(envelope); err == nil && (len(h.KeyID) == 0 || len(h.KeyID) > seal.MaxKeyID || len(h.Wrapped) > seal.MaxWrapped) {
			t.Fatalf("parsed %+v", h)
		}
	})
}
