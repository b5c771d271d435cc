package seal_test

import (
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/seal"
)

func TestParseKeyring(t *testing.T) {
	one, two := base64.StdEncoding.EncodeToString(testkit.Secret("1")), base64.StdEncoding.EncodeToString(testkit.Secret("2"))
	keys := testkit.Must(seal.ParseKeyring("# new\n\r\n orders-2 \t" + two + "\r\norders-1 " + one))
	current, _ := keys.Current(t.Context())
	old, err := keys.Find(t.Context(), "orders-1", nil)
	testkit.Check(t, current.ID == "orders-2" && string(current.Secret) == string(testkit.Secret("2")) &&
		string(old) == string(testkit.Secret("1")) && err == nil, "the current key is %q, %v", current.ID, err)
	if _, err := keys.Find(t.Context(), "orders-3", nil); !errors.Is(err, seal.ErrUnknownKey) {
		t.Errorf("another key: %v", err)
	}
	for _, shown := range []string{fmt.Sprint(keys), fmt.Sprintf("%v %+v %#v", keys, keys, keys)} {
		testkit.Check(t, !strings.Contains(shown, one[:8]) && !strings.Contains(shown, "[49 49") &&
			!strings.Contains(shown, "0x31, 0x31") && strings.Contains(shown, "2 keys"), "shown as %s", shown)
	}
	for text, want := range map[string]string{
		"":                                  "there is no key",
		"orders-1":                          "line 1: want the id of a key",
		"\norders-1 " + one[1:]:             `line 2: the secret of key "orders-1" is no base64`,
		"orders-1 c2hvcnQ=":                 `line 1: the secret of key "orders-1" has 5 bytes: it must have 32`,
		"ord\x1bers " + one:                 `line 1: the key id "ord\x1bers" must be 1 to 64 of`,
		"k " + one + "\nk " + two:           `line 2: the key "k" is there twice`,
		strings.Repeat("k", 65) + " " + one: "must be 1 to 64 of",
	} {
		_, err := seal.ParseKeyring(text)
		testkit.Check(t, err != nil && strings.Contains(err.Error(), want) && !strings.Contains(err.Error(), one[1:]),
			"%q: %v", text, err)
	}
}

// Feature D14: a file of keys that others may read is refused.
func TestReadKeyring(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys")
	text := "orders-1 " + base64.StdEncoding.EncodeToString(testkit.Secret("1")) + "\n"
	testkit.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	testkit.Is(t, testkit.Err(seal.ReadKeyring(path)), nil)
	_, err := seal.ReadKeyring(path + ".missing")
	testkit.Check(t, errors.Is(err, os.ErrNotExist), "missing: %v", err)
	testkit.Check(t, testkit.Err(seal.ReadKeyring(filepath.Dir(path))) != nil, "a folder is read")
	if runtime.GOOS != "windows" {
		for mode, readable := range map[os.FileMode]bool{0o400: true, 0o440: true, 0o640: true, 0o644: false, 0o604: false, 0o620: false, 0o602: false} {
			testkit.NoError(t, os.Chmod(path, mode))
			_, err := seal.ReadKeyring(path)
			testkit.Check(t, readable == (err == nil) && (err == nil || strings.Contains(err.Error(), "run chmod 600")),
				"%s: %v", mode, err)
		}
	}
	bad := filepath.Join(t.TempDir(), "bad")
	testkit.NoError(t, os.WriteFile(bad, []byte("x"), 0o600))
	testkit.Says(t, testkit.Err(seal.ReadKeyring(bad)), bad+": seal: keys, line 1")
}
