package documents_test

import (
	"go/scanner"
	"go/token"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// avoided are words that plain English does without, and how often each may still stand in documents, in comments, and
// in the texts of errors and log lines. The numbers only go down.
var avoided = []struct {
	words *regexp.Regexp
	left  int
}{
	{regexp.MustCompile(`(?i)\btells? whether\b`), 0},
	{regexp.MustCompile(`(?i)\b(is|are) told of\b`), 0},
	{regexp.MustCompile(`(?i)\bnobody\b`), 0},
	{regexp.MustCompile(`(?i)\bsomebody\b`), 0},
	{regexp.MustCompile(`(?i)\bwhoever\b`), 0},
	{regexp.MustCompile(`(?i)\bmended?\b`), 0},
	{regexp.MustCompile(`\bat the (most|least)\b`), 0},     // at most
	{regexp.MustCompile(`(^|[.:;] )(Who|Whom|Whose) `), 0}, // the noun
}

// madeFromCode are the pages that repeat doc comments and texts of the code.
var madeFromCode = map[string]bool{"docs/events.md": true, "docs/series.md": true}

// Sentences that people read have a noun for each thing and a verb for each fact. In Go they are comments and strings.
func TestWords(t *testing.T) {
	found := make([][]string, len(avoided))
	note := func(place, text string) {
		for i, a := range avoided {
			for range a.words.FindAllString(text, -1) {
				found[i] = append(found[i], place)
			}
		}
	}
	tree(t, ".md", func(path, text string) {
		if madeFromCode[path] {
			return
		}
		for i, line := range strings.Split(text, "\n") {
			note(path+":"+strconv.Itoa(i+1), line)
		}
	})
	tree(t, ".go", func(path, text string) {
		if strings.HasSuffix(path, "_test.go") || strings.HasPrefix(path, "internal/") {
			return
		}
		files := token.NewFileSet()
		var words scanner.Scanner
		words.Init(files.AddFile(path, -1, len(text)), []byte(text), nil, scanner.ScanComments)
		for pos, kind, read := words.Scan(); kind != token.EOF; pos, kind, read = words.Scan() {
			if kind == token.COMMENT || kind == token.STRING {
				note(path+":"+strconv.Itoa(files.Position(pos).Line), strings.TrimLeft(read, "/ "))
			}
		}
	})
	for i, a := range avoided {
		if n := len(found[i]); n > a.left {
			t.Errorf("%s: %d places, and %d are allowed. Write actor, verb, object. They are in %s", a.words, n, a.left, strings.Join(found[i], " "))
		} else if n < a.left {
			t.Logf("%s: %d places, and %d are allowed: lower the number", a.words, n, a.left)
		}
	}
}
