package jsonedit

import (
	"context"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Feature V6: the bytes that a patch does not touch stay as they are. The examples of RFC 6902 are among these.
func TestPatch(t *testing.T) {
	for _, c := range []struct{ doc, patch, want, fails string }{
		{`{"foo":"bar"}`, `[{"op":"add","path":"/baz","value":"qux"}]`, `{"foo":"bar","baz":"qux"}`, ""},
		{`{"foo":["bar","baz"]}`, `[{"op":"add","path":"/foo/1","value":"qux"}]`, `{"foo":["bar","qux","baz"]}`, ""},
		{`{"baz":"qux","foo":"bar"}`, `[{"op":"remove","path":"/baz"}]`, `{"foo":"bar"}`, ""},
		{`{"foo":["bar","qux","baz"]}`, `[{"op":"remove","path":"/foo/1"}]`, `{"foo":["bar","baz"]}`, ""},
		{`{"baz":"qux","foo":"bar"}`, `[{"op":"replace","path":"/baz","value":"boo"}]`, `{"baz":"boo","foo":"bar"}`, ""},
		{`{"foo":{"bar":"baz","waldo":"fred"},"qux":{"corge":"grault"}}`, `[{"op":"move","from":"/foo/waldo","path":"/qux/thud"}]`,
			`{"foo":{"bar":"baz"},"qux":{"corge":"grault","thud":"fred"}}`, ""},
		{`{"foo":["all","grass","cows","eat"]}`, `[{"op":"move","from":"/foo/1","path":"/foo/3"}]`, `{"foo":["all","cows","eat","grass"]}`, ""},
		{`{"baz":"qux","foo":["a",2,"c"]}`, `[{"op":"test","path":"/baz","value":"qux"},{"op":"test","path":"/foo/1","value":2.0}]`, `{"baz":"qux","foo":["a",2,"c"]}`, ""},
		{`{"baz":"qux"}`, `[{"op":"test","path":"/baz","value":"bar"}]`, "", "another"},
		{`{"foo":"bar"}`, `[{"op":"add","path":"/child","value":{"grandchild":{}},"xyz":1}]`, `{"foo":"bar","child":{"grandchild":{}}}`, ""},
		{`{"foo":"bar"}`, `[{"op":"add","path":"/baz/bat","value":"qux"}]`, "", "no such value"},
		{`{"/":9,"~1":10}`, `[{"op":"test","path":"/~01","value":10}]`, `{"/":9,"~1":10}`, ""},
		{`{"foo":["bar"]}`, `[{"op":"add","path":"/foo/-","value":["abc"]}]`, `{"foo":["bar",["abc"]]}`, ""},
		{`{}`, `[{"op":"add","path":"","value":[1]}]`, `[1]`, ""},
		{` { "n" : 12345678901234567890.10 ,  "a":[ ] , "u":"\u00e9" } `, `[{"op":"add","path":"/a/0","value":1E400}]`,
			` { "n" : 12345678901234567890.10 ,  "a":[1E400 ] , "u":"\u00e9" } `, ""},
		{`{"a":1,"a":2,"b":3}`, `[{"op":"remove","path":"/b"}]`, `{"a":1,"a":2}`, ""},
		{`{"a":1,"a":2,"b":3}`, `[{"op":"replace","path":"/a","value":0}]`, "", "twice"},
		{`{"a":1}`, `[{"op":"remove","path":"/a"}]`, `{}`, ""},
		{`[1,2]`, `[{"op":"remove","path":"/01"}]`, "", "no index"},
		{`[1,2]`, `[{"op":"add","path":"/3","value":0}]`, "", "no index"},
		{`[1]`, `[{"op":"copy","from":"/0","path":"/-"}]`, `[1,1]`, ""},
		{`{"a":{"b":1}}`, `[{"op":"move","from":"/a","path":"/a/b"}]`, "", "into itself"},
		{`"text"`, `[{"op":"add","path":"/a","value":1}]`, "", "neither"},
		{`{"a":1e2}`, `[{"op":"test","path":"/a","value":100.0},{"op":"test","path":"","value":{"a":1000E-1}}]`, `{"a":1e2}`, ""},
		{`{"a":9007199254740993}`, `[{"op":"test","path":"/a","value":9007199254740992}]`, "", "another"},
		{"\xff\xfe", `[{"op":"add","path":"/a","value":1}]`, "", "UTF-8"},
		{"not JSON", `[{"op":"add","path":"/a","value":1}]`, "", "not JSON"},
		{"", `[{"op":"add","path":"/a","value":1}]`, "", "not JSON"},
		{`{}`, `{}`, "", "read the patch"}, {`{}`, `[]`, "", "1 to"}, {`{}`, `[{"op":"spin","path":""}]`, "", "no operation"},
		{`{}`, `[{"op":"add","value":1}]`, "", "path"}, {`{}`, `[{"op":"add","path":"/a"}]`, "", "value"}, {`{}`, `[{"op":"copy","path":"/a"}]`, "", "from"},
		{`{}`, `[{"op":"add","path":"a","value":1}]`, "", "slash"}, {`{}`, `[{"op":"add","path":"/~2","value":1}]`, "", "~"},
	} {
		p, err := Parse([]byte(c.patch))
		var got []byte
		if err == nil {
			got, err = p.Apply(context.Background(), []byte(c.doc))
		}
		if c.fails != "" {
			testkit.Check(t, err != nil && strings.Contains(err.Error(), c.fails),
				"%s of %s: %q, %v; want an error with %q", c.patch, c.doc, got, err, c.fails)
		} else if err != nil || string(got) != c.want {
			t.Errorf("%s of %s: %q, %v; want %q", c.patch, c.doc, got, err, c.want)
		}
	}
}

// Feature V6: the examples of RFC 7396, and bytes.
func TestMerge(t *testing.T) {
	for _, c := range []struct{ doc, patch, want string }{
		{`{"a":"b"}`, `{"a":"c"}`, `{"a":"c"}`}, {`{"a":"b"}`, `{"b":"c"}`, `{"a":"b","b":"c"}`}, {`{"a":"b"}`, `{"a":null}`, `{}`},
		{`{"a":"b","b":"c"}`, `{"a":null}`, `{"b":"c"}`}, {`{"a":["b"]}`, `{"a":"c"}`, `{"a":"c"}`}, {`{"a":"c"}`, `{"a":["b"]}`, `{"a":["b"]}`},
		{`{"a":{"b":"c"}}`, `{"a":{"b":"d","c":null}}`, `{"a":{"b":"d"}}`}, {`{"a":[{"b":"c"}]}`, `{"a":[1]}`, `{"a":[1]}`},
		{`["a","b"]`, `["c","d"]`, `["c","d"]`}, {`{"a":"b"}`, `["c"]`, `["c"]`}, {`{"a":"foo"}`, `null`, `null`}, {`{"a":"foo"}`, `"bar"`, `"bar"`},
		{`{"e":null}`, `{"a":1}`, `{"e":null,"a":1}`}, {`[1,2]`, `{"a":"b","c":null}`, `{"a":"b"}`}, {`{}`, `{"a":{"bb":{"ccc":null}}}`, `{"a":{"bb":{}}}`},
		{"{\n  \"id\": 9007199254740993,\n  \"to\": \"x\"\n}\n", `{"to":"y"}`, "{\n  \"id\": 9007199254740993,\n  \"to\": \"y\"\n}\n"},
	} {
		got, err := merge([]byte(c.doc), []byte(c.patch))
		testkit.Check(t, err == nil && string(got) == c.want,
			"%s of %s: %q, %v; want %q", c.patch, c.doc, got, err, c.want)
	}
	testkit.Is(t, testkit.Err(merge([]byte(`{"a":1,"a":2}`), []byte(`{"a":3}`))), errTwice)
}

// Feature V6: copies of copies do not fill the memory.
func TestPatch_bounded(t *testing.T) {
	patch := `[{"op":"add","path":"/a","value":[1,2,3,4,5,6,7,8,9]}` + strings.Repeat(`,{"op":"copy","from":"/a","path":"/a/-"}`, 60) + `]`
	p, err := Parse([]byte(patch))
	if err == nil {
		_, err = p.Apply(context.Background(), []byte(`{}`))
	}
	testkit.Check(t, err != nil && strings.Contains(err.Error(), "grows"), "%v", err)
}

// Feature V6: whatever the document and the patch are, the answer is an error or JSON that means what was asked for.
func FuzzEdit(f *testing.F) {
	f.Add(`{"a":[1,{"b":null}], "c" : "\"]}" }`, `[{"op":"add","path":"/a/1/b","value":{}},{"op":"remove","path":"/c"}]`, `{"a":{"x":1},"c":null}`)
	f.Add(`[[],[{}]]`, `[{"op":"move","from":"/1/0","path":"/0/-"}]`, `[]`)
	f.Fuzz(func(t *testing.T, doc, patch, patchOf string) {
		if p, err := Parse([]byte(patch)); err == nil {
			got, err := p.Apply(context.Background(), []byte(doc))
			testkit.Check(t, (err != nil || json.Valid(got)), "%q of %q is %q", patch, doc, got)
		}
		got, err := merge([]byte(doc), []byte(patchOf))
		if err != nil {
			return
		}
		var d, m, g any
		if json.Unmarshal([]byte(doc), &d) != nil || json.Unmarshal([]byte(patchOf), &m) != nil {
			return
		}
		err = json.Unmarshal(got, &g)
		testkit.Check(t, err == nil && reflect.DeepEqual(g, merged(d, m)), "%q of %q is %q: %v", patchOf, doc, got, err)
	})
}

func merge(doc, patch []byte) ([]byte, error) {
	m, err := ParseMerge(context.Background(), patch)
	if err != nil {
		return nil, err
	}
	return m.Apply(context.Background(), doc)
}

// merged is MergePatch as RFC 7396 writes it.
func merged(doc, patch any) any {
	p, is := patch.(map[string]any)
	if !is {
		return patch
	}
	d, is := doc.(map[string]any)
	if !is {
		d = map[string]any{}
	}
	for key, value := range p {
		if value == nil {
			delete(d, key)
		} else {
			d[key] = merged(d[key], value)
		}
	}
	return d
}
