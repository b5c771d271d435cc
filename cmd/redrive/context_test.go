package main

import (
	"os"
	"strings"
	"testing"

	"github.com/watermill-spillway/spillway/internal/testkit"
)

// Feature V10: a context is a name for a place. A flag is stronger, then the context that is named, the environment, and the
// context in use. Two answers to the question where the letters are, are refused.
func TestContexts(t *testing.T) {
	s, empty := newShop(t, incident()...), newShop(t)
	folder := t.TempDir()
	write := func(name, text string) string {
		testkit.NoError(t, os.WriteFile(folder+"/"+name, []byte(text), 0o600))
		return folder + "/" + name
	}
	here := write("here.conf", "db = "+s.url+"\nservice = shop\n")
	there := write("there.conf", "db = "+empty.url+"\nservice = other\n")
	neither := write("neither.conf", "service = shop\n")
	around := s.env
	s.env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "SPILLWAY_SERVICE=elsewhere"}
	const url = "https://shop.example.com/deadletters/"
	s.steps([]step{
		{0, "there is no context", []string{"context", "list"}},
		{2, "redrive context add makes one", []string{"list", "--context", "prod"}},
		{3, "no context is in use", []string{"context", "show"}},
		{2, "needs --url and --token-file, or --config", []string{"context", "add", "a"}},
		{2, "--token-file is empty", []string{"context", "add", "a", "--url", url}},
		{2, "name or a password", []string{"context", "add", "a", "--url", "https://ann:hunter2@x", "--token-file", "t"}},
		{2, "to this machine alone", []string{"context", "add", "a", "--url", "http://shop.example.com", "--token-file", "t"}},
		{2, `NAME is "a b"`, []string{"context", "add", "a b", "--config", here}},
		{0, "here.conf", []string{"context", "add", "here", "--config", here, "--use"}},
		{0, "there.conf", []string{"context", "add", "there", "--config", there}},
		{0, url, []string{"context", "add", "prod", "--url", url, "--token-file", "token"}},
		{0, `"token_file":"/`, []string{"context", "list", "--json"}},
		{0, "neither.conf", []string{"context", "add", "neither", "--config", neither}},
		{0, "id-0", []string{"list"}},
		{0, "no letter is", []string{"list", "--context", "there"}},
		{2, `use one of here, neither, prod, there`, []string{"list", "--context", "nowhere"}},
		{2, "has neither url nor db", []string{"list", "--context", "neither"}},
		{2, "give one", []string{"list", "--context", "here", "--db", s.url}},
		{2, "give one", []string{"list", "--url", url, "--db", s.url}},
		{2, "the API knows who you are", []string{"list", "--context", "prod", "--by", "bob"}},
		{0, "there", []string{"context", "use", "there"}},
		{0, "no letter is", []string{"list"}},
		{0, "id-0", []string{"list", "--db", s.url, "--service", "shop"}},
		{0, "id-0", []string{"list", "--config", here, "--service", "shop"}},
		{2, `the context is "nowhere"`, []string{"context", "use", "nowhere"}},
		{0, "*\tthere", []string{"context", "show"}},
	})
	home, around := s.env, append(around, s.env[1])
	s.env = append(home, "REDRIVE_CONTEXT=here")
	s.steps([]step{{0, "id-0", []string{"list"}}, {0, "no letter is", []string{"list", "--context", "there"}}})
	s.env = append(around, "REDRIVE_CONTEXT=here")
	s.steps([]step{{2, "REDRIVE_URL or SPILLWAY_DB is set too", []string{"list"}}, {0, "id-0", []string{"list", "--context", "here"}}})
	s.env = around
	s.steps([]step{{0, "id-0", []string{"list"}}})
	s.env = home
	s.steps([]step{{0, "", []string{"context", "remove", "there"}}, {3, "no context is in use", []string{"context", "show"}}})

	file := strings.TrimPrefix(s.env[1], "HOME=") + "/.config/redrive/contexts.json"
	info := testkit.Must(os.Stat(file))
	testkit.Check(t, info.Mode().Perm() == 0o600, "the mode is %v", info.Mode())
	testkit.NoError(t, os.Chmod(file, 0o620))
	s.steps([]step{{2, "chmod 600", []string{"list"}}, {0, "id-0", []string{"list", "--config", here, "--service", "shop"}}})
	testkit.NoError(t, os.WriteFile(file, []byte(`{"contexts":{},"colour":1}`), 0o600))
	testkit.NoError(t, os.Chmod(file, 0o600))
	s.steps([]step{{2, "a newer redrive", []string{"context", "list"}}})
}
