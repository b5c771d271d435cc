package api_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/internal/operate/api"
	"github.com/watermill-spillway/spillway/internal/order/parked"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/timing"
	"github.com/watermill-spillway/spillway/middleware/breaker/circuit"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

var update = flag.Bool("update", false, "write openapi.json")

// Feature V13: the document says of each route what the table and the types of the answers say.
func TestDocument(t *testing.T) {
	want := testkit.Must(json.MarshalIndent(newDocument(t).whole(), "", " "))
	want = append(want, '\n')
	if *update {
		testkit.NoError(t, os.WriteFile("openapi.json", want, 0o644))
	}
	is := testkit.Must(os.ReadFile("openapi.json"))
	testkit.Check(t, bytes.Equal(is, want),
		"openapi.json is not what the routes are: go test ./internal/operate/api -run TestDocument -update")
}

type object = map[string]any

// document makes an OpenAPI document of the table of routes. Descriptions are the comments of the types.
type document struct {
	schemas  object
	of       map[string]reflect.Type      // the type of each schema
	dry      bool                         // the body is one of a dry run
	comments map[string]map[string]string // by the name of a type, then of a field; a type's own has no name
}

func newDocument(t *testing.T) *document {
	d := &document{schemas: object{}, of: map[string]reflect.Type{}, comments: map[string]map[string]string{}}
	for _, dir := range []string{"internal/operate", "internal/inside", "internal/order/parked", "redrive/campaigns", "redrive/letters",
		"middleware/breaker/circuit"} {
		for _, name := range testkit.Must(filepath.Glob("../../../" + dir + "/*.go")) {
			if !strings.HasSuffix(name, "_test.go") {
				d.read(path.Base(dir), testkit.Must(parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)))
			}
		}
	}
	return d
}

// read keeps the comments of the types of a file.
func (d *document) read(of string, file *ast.File) {
	says, all := "", map[string]string{}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GenDecl:
			says = n.Doc.Text()
		case *ast.TypeSpec:
			all = map[string]string{"": says}
			d.comments[of+"."+n.Name.Name] = all
		case *ast.Field:
			for _, name := range n.Names {
				all[name.Name] = cmp.Or(n.Doc.Text(), n.Comment.Text())
			}
		}
		_, function := n.(*ast.FuncDecl)
		return !function
	})
}

func (d *document) whole() object {
	d.schema(reflect.TypeFor[operate.Problem](), false)
	paths, tags := object{}, []string{}
	for _, r := range api.Table() {
		tags = append(tags, tag(r))
		if paths[r.Pattern] == nil {
			paths[r.Pattern] = object{}
		}
		paths[r.Pattern].(object)[strings.ToLower(r.Method)] = d.operation(r)
	}
	slices.Sort(tags)
	var all []any
	for _, name := range slices.Compact(tags) {
		all = append(all, object{"name": name, "description": about[name]})
	}
	return object{
		"openapi": "3.1.0", "tags": all,
		"info": object{"title": "Spillway", "version": api.Version, "license": object{"name": "MIT", "identifier": "MIT"},
			"contact": object{"name": "Spillway", "url": "https://github.com/watermill-spillway/spillway"},
			"description": "The dead letters of a service, for programs. docs/api.md says how to use it. Within version 1 fields may come, " +
				"and none goes: ignore those that you do not know."},
		"servers":  []any{object{"url": "."}},
		"paths":    paths,
		"security": []any{object{}, object{"access": []any{}}},
		"components": object{"schemas": d.schemas, "securitySchemes": object{"access": object{"type": "http", "scheme": "bearer",
			"description": "What the access function of the service asks for: a bearer token, a cookie, or a header of a proxy."}},
			"responses": object{"Problem": object{"description": "Why the request was not answered.", "content": object{
				"application/problem+json": object{"schema": object{"$ref": "#/components/schemas/Problem"}}}}}},
	}
}

func (d *document) operation(r api.Route) object {
	op := object{"operationId": r.Name, "tags": []any{tag(r)}, "summary": r.Says, "description": "Needs the right to " + r.Right.String() + "."}
	if r.Right == 0 {
		op["description"] = "Needs no right."
	}
	var parameters []any
	for _, part := range strings.Split(r.Pattern, "/") {
		if name := strings.Trim(part, "{}"); name != part {
			schema := object{"type": "string"}
			if name == "seq" {
				schema = object{"type": "integer", "format": "int64", "minimum": 1}
			}
			parameters = append(parameters, object{"name": name, "in": "path", "required": true, "schema": schema})
		}
	}
	for _, name := range r.Query {
		parameters = append(parameters, parameter(name))
	}
	if r.Keyed {
		parameters = append(parameters, object{"name": "Idempotency-Key", "in": "header", "required": true, "schema": object{"type": "string", "format": "uuid"},
			"description": "A new UUID, and the same if the request is sent again: it takes effect once."})
	}
	if parameters != nil {
		op["parameters"] = parameters
	}
	if r.Body != nil {
		d.dry = !r.Keyed
		op["requestBody"] = object{"required": true, "content": object{"application/json": object{"schema": d.schema(reflect.TypeOf(r.Body), true)}}}
	}
	answer := object{"description": "Done."}
	if kind, is := r.Gives.(string); is {
		schema := object{"type": "string"}
		if kind == "application/json" {
			schema = object{"type": "object"}
		}
		answer["content"] = object{kind: object{"schema": schema}}
	} else {
		answer["content"] = object{"application/json": object{"schema": d.schema(reflect.TypeOf(r.Gives), false)}}
	}
	problem := object{"$ref": "#/components/responses/Problem"}
	responses := object{"400": problem, "default": problem}
	responses[map[int]string{0: "200", 201: "201"}[r.Status]] = answer
	if _, is := r.Gives.(string); r.Method == "GET" && !is {
		answer["headers"] = object{"ETag": object{"schema": object{"type": "string"}}}
		responses["304"] = object{"description": "The same as the ETag in If-None-Match."}
	}
	op["responses"] = responses
	return op
}

// about says what the routes of a tag are for.
var about = map[string]string{
	"audit": "The record.", "campaigns": "Redrives: start, follow and steer them.",
	"causes": "Why letters failed.", "discards": "Take letters away from redrives.", "erasures": "Erase a person's data.",
	"health": "Counts.", "letters": "List, count, show and edit letters.",
	"outages": "Freezes that all instances share.", "plan": "Dry runs.", "policies": "Standing policies.",
	"restores": "Give discarded letters back.", "sequences": "Keys in order, and what is decided about them.",
	"service": "The service, the person, and this document.",
}

// tag is what a route is about: the first part of its path.
func tag(r api.Route) string {
	first, _, _ := strings.Cut(strings.TrimPrefix(r.Pattern, "/"), "/")
	first, _, _ = strings.Cut(first, ".")
	if first == "" || first == "openapi" {
		return "service"
	}
	return first
}

func parameter(name string) object {
	schema, says := object{"type": "string"}, map[string]string{
		"limit": "The largest number of rows.", "order": "oldest or newest.",
		"after": "next of the page before. Of letters and entries it is the number of the last row that was seen, of causes how many are left out.",
		"by":    "Who did it.", "kind": "A kind of entries.", "letter": "The number of a letter, for all that happened to its message.",
		"state": "A state of campaigns.", "redrive-id": "The id of a campaign, discard or restore.",
	}[name]
	if i := slices.IndexFunc(operate.FilterFields, func(f operate.FilterField) bool { return f.Name == name }); i >= 0 {
		f := operate.FilterFields[i]
		if says = f.Label + "."; f.Hint != "" {
			says = f.Label + ", as " + f.Hint + "."
		}
	}
	switch {
	case slices.Contains(api.Lists, name):
		schema = object{"type": "array", "items": schema}
	case slices.Contains(api.Flags, name):
		schema["enum"] = []any{"1", "true"}
		says = "Only letters " + says
	case name == "limit":
		schema = object{"type": "integer", "minimum": 1, "maximum": 1000}
	case name == "letter":
		schema = object{"type": "integer", "format": "int64", "minimum": 1}
	}
	return object{"name": name, "in": "query", "schema": schema, "description": says}
}

// names are the names of types in the document. The others have their own, without Data.
var names = map[reflect.Type]string{
	reflect.TypeFor[operate.RequestData](): "CampaignRequest",
	reflect.TypeFor[parked.Parked]():       "ParkedKey", reflect.TypeFor[circuit.Status](): "Breaker", reflect.TypeFor[inside.Behind](): "LeftBehind",
	reflect.TypeFor[inside.Diff](): "Difference", reflect.TypeFor[inside.KeyDiff](): "KeyDifference", reflect.TypeFor[operate.WholeData](): "WholeLetter",
	reflect.TypeFor[letters.Filter](): "Filter",
}

// bounds are what the server holds the fields of bodies to. TestBodies of examples/api goes beyond each.
var bounds = map[string]object{
	"reason": {"minLength": 1}, "version": {"minLength": 1}, "cause": {"minLength": 1}, "rate": {"minimum": 0},
	"canary": {"minimum": 0}, "max": {"minimum": 0}, "concurrency": {"minimum": 0, "maximum": 256}, "stop_at": {"minimum": 0, "maximum": 1},
	"stop_after": {"minimum": 0}, "max_seq": {"minimum": 0}, "seqs": {"maxItems": campaigns.MaxSeqs}, "Cause.note": {"maxLength": operate.MaxNote},
	"Cause.owner": {"maxLength": operate.MaxOwner}, "Cause.link": {"maxLength": operate.MaxLink}, "Erasure.ids": {"maxItems": 500},
}

// schema returns the schema of a type. A body has no field that is not named.
func (d *document) schema(of reflect.Type, body bool) object {
	switch of {
	case reflect.TypeFor[time.Time](), reflect.TypeFor[*time.Time]():
		return object{"type": "string", "format": "date-time"}
	case reflect.TypeFor[timing.Duration]():
		return object{"type": "string", "pattern": timing.Pattern, "examples": []any{"1h30m"}}
	case reflect.TypeFor[json.RawMessage]():
		return object{}
	}
	if text := reflect.TypeFor[interface{ MarshalText() ([]byte, error) }](); of.Implements(text) {
		return object{"type": "string"}
	}
	switch of.Kind() {
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.String:
		return object{"type": "string"}
	case reflect.Float64:
		return object{"type": "number", "format": "double"}
	case reflect.Int, reflect.Int32, reflect.Int64:
		return object{"type": "integer", "format": map[bool]string{true: "int32", false: "int64"}[of.Kind() == reflect.Int32]}
	case reflect.Pointer:
		return d.schema(of.Elem(), body)
	case reflect.Slice:
		if of.Elem() == reflect.TypeFor[byte]() { // a class of failures is text
			return object{"type": "string", "contentEncoding": "base64"}
		}
		return object{"type": "array", "items": d.schema(of.Elem(), body)}
	case reflect.Map:
		return object{"type": "object", "additionalProperties": d.schema(of.Elem(), body)}
	case reflect.Struct:
		return d.component(of, body)
	}
	panic("no schema for " + of.String())
}

func (d *document) component(of reflect.Type, body bool) object {
	name := names[of]
	if name == "" {
		name = strings.TrimSuffix(of.Name(), "Data")
	}
	if body && !strings.HasSuffix(name, "Body") {
		name += "Body"
	}
	reason := true // a dry run takes the body of what it tries, and needs no reason
	if _, is := of.FieldByName("Reason"); is && body && d.dry {
		reason, name = false, "Plan"+strings.TrimPrefix(name, "Start")
	}
	ref := object{"$ref": "#/components/schemas/" + name}
	if d.schemas[name] != nil {
		if d.of[name] != of {
			panic(name + " is the name of two types: give one a name in names")
		}
		return ref
	}
	d.of[name] = of
	schema := object{"type": "object"}
	d.schemas[name] = schema // before its fields: a type may have itself
	if says := d.comments[of.String()][""]; says != "" {
		schema["description"] = sentence(of.Name(), name, says)
	}
	properties, required := object{}, []string{}
	d.fields(of, body, properties, &required, nil)
	if schema["properties"] = properties; body {
		schema["additionalProperties"] = false
	}
	slices.Sort(required)
	required = slices.DeleteFunc(slices.Compact(required), func(field string) bool { return field == "reason" && !reason })
	if len(required) > 0 {
		schema["required"] = required
	}
	if !reason {
		delete(properties["reason"].(object), "minLength")
	}
	return ref
}

// fields adds the fields of a struct and of those that are embedded, but for fields that a field outside hides.
func (d *document) fields(of reflect.Type, body bool, properties object, required *[]string, outside []string) {
	hidden := slices.Clone(outside)
	for i := range of.NumField() {
		tag, _, _ := strings.Cut(of.Field(i).Tag.Get("json"), ",")
		hidden = append(hidden, tag)
	}
	for i := range of.NumField() {
		if f := of.Field(i); f.Anonymous && f.Tag.Get("json") == "" {
			d.fields(f.Type, body, properties, required, hidden)
		}
	}
	for i := range of.NumField() {
		f := of.Field(i)
		tag, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !f.IsExported() || tag == "-" || slices.Contains(outside, tag) || f.Anonymous && tag == "" || body && of == reflect.TypeFor[campaigns.Request]() && tag == "id" ||
			body && of == reflect.TypeFor[campaigns.Act]() && tag == "by" {
			continue
		}
		schema := d.schema(f.Type, body)
		if f.Type.Kind() == reflect.Pointer && options == "" && !body {
			schema = object{"type": []any{schema["type"], "null"}}
		}
		if says := d.comments[of.String()][f.Name]; says != "" {
			says = strings.Join(strings.Fields(says), " ")
			if unit, is := schema["description"]; is {
				says += " " + unit.(string)
			}
			schema["description"] = strings.TrimPrefix(says, f.Name+" is ")
		}
		if body {
			maps.Copy(schema, bounds[tag])
			maps.Copy(schema, bounds[strings.TrimSuffix(of.Name(), "Body")+"."+tag])
		}
		if properties[tag] = schema; options == "" {
			*required = append(*required, tag)
		}
	}
}

func sentence(was, is, says string) string {
	return strings.Join(strings.Fields(strings.Replace(says, was+" ", is+" ", 1)), " ")
}
