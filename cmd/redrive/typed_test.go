package main

import (
	"os"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/poison"
)

// odd are letters whose ids, topics and reasons have what programs like to take apart.
func odd() []*message.Message {
	of := func(id, topic, reason string) *message.Message {
		return letter(id, "{}", func(l *poison.Letter) { l.Origin.Topic, l.Failure.Reason = topic, reason })
	}
	return []*message.Message{
		of("order-7,line-2", "a,b", "no,stock"), of("order-7", "a", "no"), of("line-2", "b", "stock"),
		of(`"q"`, "c", `"no"`), of("x\ny", "c", "other"), of("x", "c", "other"), of("y", "c", "other"),
	}
}

// Feature V10, promise P6: a selection is what was typed. A value is not taken apart at commas, quotes or lines.
func TestSelectionIsWhatWasTyped(t *testing.T) { bothWays(t, odd(), testSelectionIsWhatWasTyped) }

func testSelectionIsWhatWasTyped(t *testing.T, s *shop) {
	lists := func(want string, args ...string) {
		t.Helper()
		var seqs []string
		for line := range strings.Lines(s.pipe(append([]string{"list", "--json"}, args...)...).out) {
			_, after, _ := strings.Cut(line, `"seq":`)
			seq, _, _ := strings.Cut(after, ",")
			seqs = append(seqs, seq)
		}
		testkit.Check(t, strings.Join(seqs, " ") == want, "%q lists %q, want %q", args, seqs, want)
	}
	lists("1", "--id", "order-7,line-2")
	lists("2 3", "--id", "order-7", "--id", "line-2")
	lists("4", "--id", `"q"`)
	lists("5", "--id", "x\ny")
	lists("1", "--topic", "a,b")
	lists("2 3 4 5 6 7", "--not-topic", "a,b")
	lists("1", "--failure-reason", "no,stock")
	lists("4", "--failure-reason", `"no"`)
	lists("2 3", "--metadata", "tenant=blue", "--id", "order-7", "--id", "line-2")

	ids := func(text string) string {
		file := t.TempDir() + "/ids"
		testkit.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		return file
	}
	lists("1 2 4", "--id-file", ids("order-7,line-2\r\n\r\norder-7\n\"q\""))
	lists("1 3", "--id", "line-2", "--id-file", ids("order-7,line-2\n"))
	s.input("x\ny\n", "list", "--id-file", "-").wants(t, 0, "\tx\t")
	s.steps([]step{
		{2, "--id-file is", []string{"list", "--id-file", ids("\r\n \n")}},
		{2, "--id-file", []string{"list", "--id-file", ids("") + ".no"}},
		{2, "UTF-16", []string{"list", "--id-file", ids("\xff\xfex\x00")}},
		{2, "UTF-8", []string{"list", "--id-file", ids("x\xff\n")}},
		{2, "--not-topic", []string{"discard", "--not-topic", "a\nb", "--reason", "two lines", "--yes"}},
		{2, "--metadata", []string{"list", "--metadata", "tenant=blue", "--metadata", "tenant=red"}},
		{2, `--status is "waiting,discarded"`, []string{"list", "--status", "waiting,discarded"}},
		{0, "would redrive 1 letter", []string{"redrive", "--id", "order-7,line-2", "--dry-run"}},
		{2, "--set", []string{"redrive", "1", "--set", "a=1", "--set", "a=2", "--dry-run"}},
		{0, "discarded 1 letter\n", []string{"discard", "--id", "order-7,line-2", "--reason", "the one", "--yes"}},
		{0, "discarded\t1\t", []string{"audit", "--id", "order-7,line-2"}},
		{2, "--kind", []string{"audit", "--kind", "discarded,stored"}},
		{0, "no such entry", []string{"audit", "--who", "ann,bob"}},
	})
	lists("2 3 4 5 6 7")
	erase := []string{"erase", "--reason", "request 17", "--yes"}
	s.steps([]step{
		{2, "--metadata", append(erase, "--metadata", "tenant=blue", "--metadata", "tenant=red")},
		{0, "erased 1 letter", append(erase, "--id", "order-7,line-2")},
		{0, "erased 1 letter", append(erase, "--id", "x\ny")},
		{0, "erased 2 letters", append(erase, "--id-file", ids("x\ny\n"))},
	})
	lists("2 3 4")
}

// Promise P6: a topic of --allow is one topic.
func TestAllowIsWhatWasTyped(t *testing.T) {
	s := newShop(t, odd()...)
	s.pipe("redrive", "1", "--allow", "a,b", "--dry-run").wants(t, 0, "would redrive 1 letter")
	got := s.pipe("redrive", "2", "--allow", "a,b", "--dry-run")
	testkit.Check(t, !strings.Contains(got.out, "would redrive 1 letter"), "a topic that is not allowed: %s", got.out)
}

// Feature V10: an export that a program saved in another encoding is refused by its name, before a letter is stored.
func TestImportNamesTheEncoding(t *testing.T) {
	s := newShop(t, letter("id-0", "{}"))
	lines := s.pipe("export").out
	var le, be strings.Builder
	for _, r := range []byte(lines) {
		le.Write([]byte{r, 0})
		be.Write([]byte{0, r})
	}
	for text, says := range map[string]string{
		"\xef\xbb\xbf" + lines:                      "line 1: the text is UTF-8 with a byte order mark",
		"\xff\xfe" + le.String():                    "line 1: the text is UTF-16",
		"\xfe\xff" + be.String():                    "line 1: the text is UTF-16",
		le.String():                                 "line 1: the text is UTF-16",
		strings.ReplaceAll(lines, "blue", "bl\xfc"): "line 1: the text is not UTF-8",
	} {
		s.input(text, "import", "-", "--yes").wants(t, 2, says)
	}
	s.input(lines, "import", "-", "--yes").wants(t, 0, "imported 1 letter")
}
