package privacy_test

import (
	"fmt"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/privacy"
)

// corpus returns the texts of a file: a quoted string of Go a line, and lines of comments.
func corpus(t *testing.T, file string) (texts []string) {
	t.Helper()
	all := testkit.Must(os.ReadFile("testdata/" + file))
	for n, line := range strings.Split(strings.TrimSpace(string(all)), "\n") {
		if strings.HasPrefix(line, "#") {
			continue
		}
		text, err := strconv.Unquote(line)
		testkit.Require(t, err == nil, "%s, line %d: %v", file, n+1, err)
		texts = append(texts, text)
	}
	return texts
}

var marked = regexp.MustCompile("(?s)‹(.*?)›")

// Feature D14: a credential in a text is masked, in every way that drivers and clients say or print it, and all around
// it stays. It is found as well where another program has quoted the text, or put it into an address.
func TestCorpusOfDrivers(t *testing.T) {
	texts := corpus(t, "secrets.txt")
	for _, text := range texts {
		plain, want := marked.ReplaceAllString(text, "$1"), marked.ReplaceAllString(text, privacy.Mark)
		got := standard.Text(plain)
		testkit.Check(t, got == want, "%q\n got  %q\n want %q", plain, got, want)
		testkit.Equal(t, "masked again", standard.Text(got), got)
		testkit.Equal(t, "None masks", privacy.None().Text(plain), plain)
		for _, within := range []string{strconv.Quote(plain), fmt.Sprintf("request failed: %q", plain), "q=" + url.QueryEscape("of "+plain+"\n")} {
			shown := standard.Text(within)
			for _, secret := range marked.FindAllStringSubmatch(text, -1) {
				testkit.Check(t, len(secret[1]) <= 5 || !strings.Contains(shown, secret[1]),
					"%q\n shows %q\n in %q", within, secret[1], shown)
			}
		}
	}
	testkit.Check(t, len(texts) >= 100, "%d texts", len(texts))
}

// Feature D14: what is no secret stays readable, such as what drivers, clients and servers say of passwords, tokens and
// keys without having one in it.
func TestCorpusReadable(t *testing.T) {
	texts := corpus(t, "readable.txt")
	for _, text := range texts {
		testkit.Equal(t, "", standard.Text(text), text)
	}
	testkit.Check(t, len(texts) >= 200, "%d texts", len(texts))
}
