package seal_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/watermill-spillway/spillway/internal/codec/envelope"
	"github.com/watermill-spillway/spillway/internal/hidden"
	"github.com/watermill-spillway/spillway/internal/hold/outage"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/seal"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func sealer(t testing.TB, ids ...string) *envelope.Sealer {
	t.Helper()
	return with(t, testkit.Must(seal.ParseKeyring(testkit.Keyring(ids...))))
}

func with(t testing.TB, keys seal.Keys, clear ...string) *envelope.Sealer {
	t.Helper()
	return hidden.Of(testkit.Must(seal.New(keys, clear...)))
}

func equal(a, b envelope.Content) bool {
	return bytes.Equal(a.Payload, b.Payload) && (a.Payload == nil) == (b.Payload == nil) && maps.Equal(a.Metadata, b.Metadata)
}

var (
	letter  = envelope.Binding{Topic: "orders", ID: "4711", Redrives: 2}
	content = envelope.Content{Payload: []byte(`{"card":"4111111111111111"}`), Metadata: map[string]string{"customer": "Ada Lovelace", "": "empty key"}}
)

// Feature D14: what is sealed opens as it was: any bytes, nil and empty payloads kept apart; it opens for no other
// letter, and the same content of the same letter has the same fingerprint, and no other has it.
func TestSealOpens(t *testing.T) {
	s := sealer(t, "k1")
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.Map(rapid.SliceOfN(rapid.Byte(), 0, 80), func(b []byte) string { return string(b) })
		draw := func(name string) (envelope.Binding, envelope.Content) {
			b := envelope.Binding{Topic: text.Draw(t, name+" topic"), ID: text.Draw(t, name+" id"), Redrives: rapid.IntRange(0, 1<<20).Draw(t, name+" redrives")}
			c := envelope.Content{Metadata: rapid.MapOfN(text, text, 0, 4).Draw(t, name+" metadata")}
			if rapid.Bool().Draw(t, name+" has payload") {
				c.Payload = append([]byte{}, text.Draw(t, name+" payload")...)
			}
			return b, c
		}
		b, c := draw("one")
		sealed := testkit.Must(s.Seal(t.Context(), b, c))
		got, err := s.Open(t.Context(), b, sealed)
		testkit.Require(t, err == nil && equal(got, c), "opened %q, %v, of %q", got, err, c)
		again, _ := s.Seal(t.Context(), b, c)
		h, _ := envelope.Parse(sealed)
		same, _ := envelope.Parse(again)
		testkit.Require(t, !bytes.Equal(again, sealed) && bytes.Equal(h.Fingerprint, same.Fingerprint) &&
			h.KeyID == "k1" && h.Binding == b, "sealed twice: %+v and %+v", h, same)
		other, oc := draw("other")
		if other != b {
			_, err := s.Open(t.Context(), other, sealed)
			testkit.Require(t, errors.Is(err, seal.ErrOtherLetter), "opened as %+v: %v", other, err)
		}
		otherEnvelope, _ := s.Seal(t.Context(), other, oc)
		if o, _ := envelope.Parse(otherEnvelope); bytes.Equal(o.Fingerprint, h.Fingerprint) != (other == b && equal(oc, c)) {
			t.Fatalf("the fingerprints are equal: %t", bytes.Equal(o.Fingerprint, h.Fingerprint))
		}
	})
}

// Feature D14: an envelope in which any one bit is changed, that is cut anywhere, or that has a byte more, does not
// open, and nothing of it is returned.
func TestTampered(t *testing.T) {
	s := sealer(t, "k1", "k2", "k3", "kq", "j1", "i1", "o1", "c1", "K1", "s1", "k0", "k5", "k9")
	sealed := testkit.Must(s.Seal(t.Context(), letter, content))
	check := func(what string, bad []byte) {
		t.Helper()
		c, err := s.Open(t.Context(), letter, bad)
		testkit.Require(t, err != nil && c.Payload == nil && c.Metadata == nil, "%s: opened %q", what, c)
		testkit.Require(t, errors.Is(err, seal.ErrDamaged) || errors.Is(err, seal.ErrUnknownKey), "%s: %v", what, err)
	}
	for i := range sealed {
		for bit := range 8 {
			bad := bytes.Clone(sealed)
			bad[i] ^= 1 << bit
			check(fmt.Sprintf("byte %d, bit %d", i, bit), bad)
		}
		check(fmt.Sprintf("cut at %d", i), sealed[:i])
	}
	check("longer", append(bytes.Clone(sealed), 0))
	check("nothing", nil)
	for _, hidden := range []string{"4111111111111111", "Ada Lovelace", "customer"} {
		testkit.Check(t, !strings.Contains(string(sealed), hidden), "the envelope shows %q", hidden)
	}
}

// Feature D14: the error names the key, and says what is wrong with it.
func TestKeysWrong(t *testing.T) {
	s := sealer(t, "orders-1")
	sealed := testkit.Must(s.Seal(t.Context(), letter, content))
	wrong := testkit.Must(seal.ParseKeyring("orders-1 " + base64.StdEncoding.EncodeToString(testkit.Secret("x"))))
	for name, of := range map[string]struct {
		sealer *envelope.Sealer
		want   error
	}{
		"lost":   {sealer(t, "orders-2"), seal.ErrUnknownKey},
		"wrong":  {with(t, wrong), seal.ErrDamaged},
		"none":   {nil, seal.ErrNoKeys},
		"away":   {with(t, failing{err: errors.New("dial kms: refused")}), seal.ErrUnavailable},
		"panics": {with(t, failing{panics: true}), seal.ErrUnavailable},
		"short":  {with(t, failing{}), seal.ErrUnavailable},
	} {
		_, err := of.sealer.Open(t.Context(), letter, sealed)
		var named *envelope.Error
		testkit.Check(t, errors.Is(err, of.want) && errors.As(err, &named) && named.KeyID == "orders-1" &&
			strings.Contains(err.Error(), `"orders-1"`), "%s: %v", name, err)
		testkit.Equal(t, name+": an outage", of.want == seal.ErrUnavailable, outage.Unavailable(err))
		if of.want != seal.ErrUnavailable {
			continue
		}
		if _, err := of.sealer.Seal(t.Context(), letter, content); !errors.Is(err, seal.ErrUnavailable) || !outage.Unavailable(err) {
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

// Feature D14: Keys that hang end after 10 s.
func TestKeysHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := with(t, failing{hangs: true})
		begun := time.Now()
		if _, err := s.Seal(t.Context(), letter, content); !errors.Is(err, seal.ErrUnavailable) || time.Since(begun) != 10*time.Second {
			t.Errorf("%v after %s", err, time.Since(begun))
		}
	})
}

// Feature D14: Reseal changes the key, and nothing else: the fingerprint stays, so that the letter is recognised.
func TestReseal(t *testing.T) {
	before, after := sealer(t, "k1"), sealer(t, "k2", "k1")
	sealed := testkit.Must(before.Seal(t.Context(), letter, content))
	if _, changed, err := before.Reseal(t.Context(), letter, sealed); err != nil || changed {
		t.Fatalf("resealed with its own key: %t, %v", changed, err)
	}
	resealed, changed, err := after.Reseal(t.Context(), letter, sealed)
	testkit.Require(t, err == nil && changed, "%v %v", changed, err)
	was, _ := envelope.Parse(sealed)
	is, _ := envelope.Parse(resealed)
	testkit.Check(t, is.KeyID == "k2" && bytes.Equal(is.Fingerprint, was.Fingerprint), "resealed: %+v of %+v", is, was)
	got, err := after.Open(t.Context(), letter, resealed)
	testkit.Check(t, err == nil && equal(got, content), "%q, %v", got, err)
	if _, err := before.Open(t.Context(), letter, resealed); !errors.Is(err, seal.ErrUnknownKey) {
		t.Errorf("the old keys: %v", err)
	}
	if _, _, err := after.Reseal(t.Context(), envelope.Binding{}, sealed); !errors.Is(err, seal.ErrOtherLetter) {
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
		s := with(t, failing{}, "unused", pattern)
		for key, want := range keys {
			testkit.Check(t, s.IsClear(key) == want, "%q is of %q: %t", key, pattern, !want)
		}
	}
}

func TestNew_refuses(t *testing.T) {
	for _, of := range []struct {
		keys  seal.Keys
		clear []string
		want  string
	}{
		{nil, nil, "seal: New: the Keys are nil: give a keyring, or Keys that ask a KMS"},
		{(*failing)(nil), nil, "seal: New: the Keys are nil: give a keyring, or Keys that ask a KMS"},
		{failing{}, []string{""}, "seal: New: clear contains an empty key: name a metadata key, or use * for all"},
	} {
		_, err := seal.New(of.keys, of.clear...)
		testkit.Check(t, err != nil && err.Error() == of.want, "%v\nwant %s", err, of.want)
	}
}

// FuzzOpen: no bytes panic, and none open that were not sealed.
func FuzzOpen(f *testing.F) {
	s := sealer(f, "k1")
	sealed := testkit.Must(s.Seal(f.Context(), letter, content))
	f.Add(sealed, "orders", "4711", 2)
	f.Add(sealed[:40], "", "", 0)
	raw, _ := hex.DecodeString("01026b3100" + strings.Repeat("00", 28) + "ffffffffffffffffff01")
	f.Add(raw, "orders", "4711", 0)
	f.Fuzz(func(t *testing.T, sealed []byte, topic, id string, redrives int) {
		b := envelope.Binding{Topic: topic, ID: id, Redrives: redrives}
		c, err := s.Open(t.Context(), b, sealed)
		testkit.Require(t, err != nil || b == letter && equal(c, content), "opened %q as %+v", c, b)
		if h, err := envelope.Parse(sealed); err == nil && (len(h.KeyID) == 0 || len(h.KeyID) > 64 || len(h.Wrapped) > 4<<10) {
			t.Fatalf("parsed %+v", h)
		}
	})
}
