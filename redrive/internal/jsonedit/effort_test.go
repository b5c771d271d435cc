package jsonedit

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

// keyed is an object of n keys, with a value for each.
func keyed(n int, value string) []byte {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `,"k%06d":%s`, i, value)
	}
	return []byte("{" + b.String()[1:] + "}")
}

// listed is a list of n values.
func listed(n int, value func(i int) string) string {
	all := make([]string, n)
	for i := range all {
		all[i] = value(i)
	}
	return "[" + strings.Join(all, ",") + "]"
}

// nested is a value below so many levels of objects.
func nested(levels int, value string) string {
	return strings.Repeat(`{"a":`, levels) + value + strings.Repeat("}", levels)
}

func wide(int) string { return "[0,{},1]" }

// apply does an edit, and returns how many bytes it read and wrote.
func apply(t *testing.T, doc, patch string) (out []byte, spent int) {
	t.Helper()
	e := &effort{ctx: t.Context()}
	var err error
	if patch[0] == '{' {
		keys := 0
		if err = valid([]byte(patch)); err == nil {
			var m *Merge
			if m, err = read(e, parsed([]byte(patch)), 0, &keys); err == nil {
				out, err = m.apply(e, []byte(doc))
			}
		}
	} else {
		var p Patch
		if p, err = Parse([]byte(patch)); err == nil {
			out, err = p.apply(e, []byte(doc))
		}
	}
	testkit.NoError(t, err)
	return out, e.spent
}

// Feature V6: an edit costs what its document and its patch are long, in bytes read, written and allocated.
func TestEdit_linear(t *testing.T) {
	ops := func(n int, op string) string { // # is the number of an operation as a key has it, @ as an index
		return listed(n/16, func(i int) string {
			return strings.NewReplacer("#", fmt.Sprintf("%06d", i), "@", strconv.Itoa(i)).Replace(op)
		})
	}
	object := func(n int, value string) string { return string(keyed(n, value)) }
	deep := strings.Repeat("/a", MaxDepth-1)
	for name, edit := range map[string]func(n int) (doc, patch string){
		"merge into nothing":   func(n int) (string, string) { return `{}`, object(n/16, "1") },
		"merge of all":         func(n int) (string, string) { return object(n/16, "0"), object(n/16, "1") },
		"merge that removes":   func(n int) (string, string) { return object(n/16, "0"), object(n/16, "null") },
		"merge of a large one": func(n int) (string, string) { return object(n, "[0]"), `{"k000001":2}` },
		"merge deep down": func(n int) (string, string) {
			return nested(MaxDepth-1, object(n, "{}")), nested(MaxDepth, "1")
		},
		"add":    func(n int) (string, string) { return `{}`, ops(n, `{"op":"add","path":"/k#","value":1}`) },
		"remove": func(n int) (string, string) { return object(n/16, "0"), ops(n, `{"op":"remove","path":"/k#"}`) },
		"replace deep down": func(n int) (string, string) {
			return nested(MaxDepth-1, listed(n, wide)), ops(n, `{"op":"replace","path":"`+deep+`/@","value":1}`)
		},
		"test": func(n int) (string, string) {
			return listed(n, wide), ops(n, `{"op":"test","path":"/1","value":[0,{},1]}`)
		},
		"copy beside a long text": func(n int) (string, string) {
			return `{"a":"` + strings.Repeat("x", n) + `","b":1}`, ops(n, `{"op":"copy","from":"/b","path":"/c"}`)
		},
		"append": func(n int) (string, string) { return `[0]`, ops(n, `{"op":"add","path":"/-","value":[1]}`) },
		"move": func(n int) (string, string) {
			return object(n, "[0]"), ops(n, `{"op":"move","from":"/k#","path":"/m#"}`)
		},
	} {
		cost := func(n int) int {
			doc, patch := edit(n)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, spent := apply(t, doc, patch)
			runtime.ReadMemStats(&after)
			return spent + int(after.TotalAlloc-before.TotalAlloc)
		}
		small, large := cost(2000), cost(16000)
		testkit.Check(t, large <= 12*small, "%s: eight times as much costs %d instead of %d", name, large, small)
	}
}

// Feature V6: a message cannot make a patch costly: each operation reads no more of it than the operation says.
func TestPatch_hostileDocument(t *testing.T) {
	const size = 1 << 18
	for name, c := range map[string]struct{ doc, value string }{
		"a long text":     {`{"a":"` + strings.Repeat("x", size) + `"}`, `"x"`},
		"a long number":   {`{"a":` + strings.Repeat("9", size) + `}`, `9`},
		"a long exponent": {`{"a":1e` + strings.Repeat("9", size) + `}`, `1e9`},
		"a long list":     {`{"a":` + listed(size/2, func(int) string { return "0" }) + `}`, `[0]`},
		"a large object":  {`{"a":` + string(keyed(size/12, "0")) + `}`, `{"k000000":0}`},
		"a deep value":    {`{"a":` + nested(5000, listed(size/8, wide)) + `}`, nested(50, "0")},
	} {
		p := testkit.Must(Parse([]byte(listed(MaxOperations, func(int) string { return `{"op":"test","path":"/a","value":` + c.value + `}` }))))
		e, left := &effort{ctx: t.Context()}, 0
		root := parsed([]byte(c.doc))
		for i := range p { // a failed test ends a patch, so each is tried for itself
			_, err := p[i].apply(e, root, &left)
			testkit.Check(t, err != nil, "%s is equal to %s", name, c.value)
		}
		testkit.Check(t, e.spent <= 4*len(c.doc),
			"%s: %d operations read %d bytes of %d", name, len(p), e.spent, len(c.doc))
	}
}

// Feature V6: a merge patch has as many keys as a patch has operations, at most.
func TestMerge_bounded(t *testing.T) {
	for n, fails := range map[int]bool{MaxKeys: false, MaxKeys + 1: true} {
		for shape, patch := range map[string]string{
			"flat": string(keyed(n, "1")), "nested": `{"a":` + string(keyed(n-1, "1")) + `}`,
		} {
			_, err := merge([]byte(`{}`), []byte(patch))
			testkit.Check(t, fails == (err != nil) &&
				(!fails || strings.Contains(err.Error(), "more than 1000 keys: split it")),
				"%d keys, %s: %v", n, shape, err)
		}
	}
	testkit.NoError(t, testkit.Err(merge([]byte(`{}`), []byte(nested(MaxDepth, "1")))))
	testkit.Is(t, testkit.Err(merge([]byte(`{}`), []byte(nested(MaxDepth+2, "1")))), errDeep)
	testkit.Is(t, testkit.Err(merge([]byte(`{}`), []byte(`{"a":1,"a":2}`))), errTwice)
}

// ending is a context that ends when it is asked for the n-th time.
type ending struct {
	context.Context
	left *int
}

func (e ending) Err() error {
	if *e.left--; *e.left < 0 {
		return context.Canceled
	}
	return nil
}

// Feature V6: wherever an edit is, it ends with its context, and looks at it at least once for every 64 KiB.
func TestEdit_ends(t *testing.T) {
	doc := nested(1, listed(30_000, wide))
	for _, patch := range []string{`{"b":1}`, `[{"op":"replace","path":"/a/7","value":1}]`} {
		for looks := 0; ; looks++ {
			left := looks
			ctx := ending{t.Context(), &left}
			var err error
			if patch[0] == '{' {
				var m *Merge
				if m, err = ParseMerge(ctx, []byte(patch)); err == nil {
					_, err = m.Apply(ctx, []byte(doc))
				}
			} else {
				var p Patch
				if p, err = Parse([]byte(patch)); err == nil {
					_, err = p.Apply(ctx, []byte(doc))
				}
			}
			if err == nil {
				if least := len(doc) / step; looks < least {
					t.Errorf("%.40s: the context of %d bytes is looked at %d times, at least %d are due", patch, len(doc), looks, least)
				}
				break
			}
			testkit.Require(t, errors.Is(err, context.Canceled), "%.40s: after %d looks: %v", patch, looks, err)
		}
	}
}
