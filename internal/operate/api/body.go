package api

import (
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"reflect"
	"strings"

	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/internal/text/boundedtext"
	"github.com/watermill-spillway/spillway/internal/timing/period"
)

// read reads the body of a request into a value: one JSON value, with no field that the value does not have.
func (r *request) read(into any) error {
	kind, params, err := mime.ParseMediaType(r.http.Header.Get("Content-Type"))
	charset := strings.ToLower(params["charset"])
	if err != nil || kind != "application/json" || charset != "" && charset != "utf-8" {
		return &operate.Problem{Status: http.StatusUnsupportedMediaType, Type: operate.ProblemMediaType,
			Title: "The body is no JSON", Detail: "The Content-Type is " + quoted(r.http.Header.Get("Content-Type")) +
				": send application/json."}
	}
	decoder := json.NewDecoder(r.http.Body)
	decoder.DisallowUnknownFields()
	if err = decoder.Decode(into); err == nil {
		_, err = decoder.Token() // after the one value there is nothing
		if errors.Is(err, io.EOF) {
			r.arrived()
			return nil
		}
		if err == nil {
			err = errors.New("it has more than one value")
		}
	}
	return badBody(err)
}

// badBody says what is wrong with a body. Errors of the connection stay as they are.
func badBody(err error) error {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	said := err.Error()
	switch {
	case errors.As(err, &kind) && kind.Type == reflect.TypeFor[period.Duration]():
		return operate.WrongValue(kind.Field, strings.Trim(kind.Value, `"`), `use text such as "1h30m"`)
	case errors.As(err, &kind):
		return &operate.Wrong{Field: kind.Field, Why: "is a " + kind.Value + " in JSON: it must be of the type " +
			kind.Type.String(), Value: kind.Value}
	case errors.Is(err, io.EOF):
		return invalid("", "The body is empty: send a JSON object.")
	case errors.As(err, &syntax), errors.Is(err, io.ErrUnexpectedEOF):
		return invalid("", "The body is no JSON: %s.", boundedtext.Text(said, 200))
	}
	if field, is := strings.CutPrefix(said, "json: unknown field "); is {
		return noField(strings.Trim(field, `"`), "is no field of this request: correct its name, or leave it out")
	}
	if connection(err) {
		return err
	}
	return invalid("", "The body cannot be read: %s.", boundedtext.Text(said, 200))
}

// noField is the problem of a field that is misspelt, or that a later version has.
func noField(name, why string) error {
	name = boundedtext.Text(name, 100)
	return &operate.Problem{Status: http.StatusBadRequest, Type: operate.ProblemNoField, Title: "This cannot be done",
		Detail: name + " " + why, Errors: []operate.FieldProblem{{Field: name, Detail: why}}}
}

// connection reports whether an error is one of the connection, and not of what came over it.
func connection(err error) bool {
	var large *http.MaxBytesError
	var net interface{ Timeout() bool }
	return errors.As(err, &large) || errors.As(err, &net)
}

func quoted(text string) string {
	if text == "" {
		return "missing"
	}
	return `"` + boundedtext.Text(text, 100) + `"`
}
