package jsonedit

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Feature V6: the values that a patch does not touch stay as they are written. The examples of RFC 6902 are among these.
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
		{`{"baz":"qux","foo":["a",2,"c"]}`, `[{"op":"test","path":"/baz","value":"qux"},{"op":"test","path":"/foo/1","value":2}]`, `{"baz":"qux","foo":["a",2,"c"]}`, ""},
		{`{"baz":"qux"}`, `[{"op":"test","path":"/baz","value":"bar"}]`, "", "test failed"},
		{`{"foo":"bar"}`, `[{"op":"add","path":"/child","value":{"grandchild":{}},"xyz":1}]`, `{"foo":"bar","child":{"grandchild":{}}}`, ""},
		{`{"foo":"bar"}`, `[{"op":"add","path":"/baz/bat","value":"qux"}]`, "", "missing"},
		{`{"/":9,"~1":10}`, `[{"op":"test","path":"/~01","value":10}]`, `{"/":9,"~1":10}`, ""},
		{`{"foo":["bar"]}`, `[{"op":"add","path":"/foo/-","value":["abc"]}]`, `{"foo":["bar",["abc"]]}`, ""},
		{`{}`, `[{"op":"add","path":"","value":[1]}]`, `[1]`, ""},
		{` { "n" : 12345678901234567890.10 ,  "a":[ ] , "u":"\u00e9" } `, `[{"op":"add","path":"/a/0","value":1E400}]`,
			`{"n":12345678901234567890.10,"a":[1E400],"u":"\u00e9"}`, ""},
		{`{"a":1,"a":2,"b":3}`, `[{"op":"replace","path":"/a","value":0}]`, "", "twice"},
		{`{"a":1}`, `[{"op":"remove","path":"/a"}]`, `{}`, ""},
		{`[1,2]`, `[{"op":"add","path":"/3","value":0}]`, "", "index"},
		{`[1]`, `[{"op":"copy","from":"/0","path":"/-"}]`, `[1,1]`, ""},
		{`{"a":{"b":1}}`, `[{"op":"move","from":"/a","path":"/a/b"}]`, "", "into itself"},
		{`"text"`, `[{"op":"add","path":"/a","value":1}]`, "", "neither"},
		{`{"a":9007199254740993}`, `[{"op":"test","path":"/a","value":9007199254740992}]`, "", "test failed"},
		{"\xff\xfe", `[{"op":"add","path":"/a","value":1}]`, "", "UTF-8"},
		{"not JSON", `[{"op":"add","path":"/a","value":1}]`, "", "not JSON"},
		{"", `[{"op":"add","path":"/a","value":1}]`, "", "not JSON"},
		{`{}`, `{}`, "", "read the patch"}, {`{}`, `[]`, "", "1 to"}, {`{}`, `[{"op":"spin","path":""}]`, "", "unsupported"},
		{`{}`, `[{"op":"add","value":1}]`, "", "path"}, {`{}`, `[{"op":"add","path":"/a"}]`, "", "value"}, {`{}`, `[{"op":"copy","path":"/a"}]`, "", "from"},
		{`{}`, `[{"op":"add","path":"a","value":1}]`, "", "slash"}, {`{}`, `[{"op":"add","path":"/~2","value":1}]`, "", "~"},
	} {
		got, err := Patch([]byte(c.doc), []byte(c.patch))
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
		{"{\n  \"id\": 9007199254740993,\n  \"to\": \"x\"\n}\n", `{"to":"y"}`, `{"id":9007199254740993,"to":"y"}`},
	} {
		got, err := Merge([]byte(c.doc), []byte(c.patch))
		testkit.Check(t, err == nil && string(got) == c.want,
			"%s of %s: %q, %v; want %q", c.patch, c.doc, got, err, c.want)
	}
	for fails, c := range map[string][2]string{
		"twice": {`{"a":1,"a":2}`, `{"a":3}`}, "the key \"b\" twice": {`{}`, `{"a":[{"b":3,"b":4}]}`},
		"more than 1000 keys": {`{}`, `{"a":{"b":0` + keys(1000) + `}}`},
		"levels":              {strings.Repeat("[", 1001) + strings.Repeat("]", 1001), `{"a":1}`},
		"UTF-8":               {"\"\xff\"", `{"a":1}`}, "text behind": {`{} {}`, `{"a":1}`},
	} {
		got, err := Merge([]byte(c[0]), []byte(c[1]))
		testkit.Check(t, err != nil && strings.Contains(err.Error(), fails), "%.40s of %.40s: %q, %v; want %q", c[1], c[0], got, err, fails)
	}
}

// Feature V6: copies of copies do not fill the memory.
func TestPatch_bounded(t *testing.T) {
	patch := `[{"op":"add","path":"/a","value":[1,2,3,4,5,6,7,8,9]}` + strings.Repeat(`,{"op":"copy","from":"/a","path":"/a/-"}`, 60) + `]`
	_, err := Patch([]byte(`{}`), []byte(patch))
	testkit.Check(t, err != nil && strings.Contains(err.Error(), "copy"), "%v", err)
}

// Feature V6: whatever the document and the patch are, the answer is an error or JSON that means what was asked for.
func FuzzEdit(f *testing.F) {
	f.Add(`{"a":[1,{"b":null}], "c" : "\"]}" }`, `[{"op":"add","path":"/a/1/b","value":{}},{"op":"remove","path":"/c"}]`, `{"a":{"x":1},"c":null}`)
	f.Add(`[[],[{}]]`, `[{"op":"move","from":"/1/0","path":"/0/-"}]`, `[]`)
	f.Fuzz(func(t *testing.T, doc, patch, patchOf string) {
		patched, err := Patch([]byte(doc), []byte(patch))
		testkit.Check(t, (err != nil || json.Valid(patched)), "%q of %q is %q", patch, doc, patched)
		got, err := Merge([]byte(doc), []byte(patchOf))
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

// keys are n members of an object, each behind a comma.
func keys(n int) (text string) {
	for i := range n {
		text += fmt.Sprintf(`,"k%d":1`, i)
	}
	return text
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
