package api

import (
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"reflect"
	"strconv"
	"strings"

	"github.com/watermill-spillway/spillway/internal/boundedtext"
	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/internal/timing"
)

// read reads the body of a request into a value: one JSON value, with no field that the value does not have.
func (r *request) read(into any) error {
	kind, params, err := mime.ParseMediaType(r.HTTP.Header.Get("Content-Type"))
	charset := strings.ToLower(params["charset"])
	if err != nil || kind != "application/json" || charset != "" && charset != "utf-8" {
		return &operate.Problem{Status: http.StatusUnsupportedMediaType, Type: operate.ProblemMediaType,
			Title: "The body is no JSON", Detail: "The Content-Type is " + quoted(r.HTTP.Header.Get("Content-Type")) +
				": send application/json."}
	}
	decoder := json.NewDecoder(r.HTTP.Body)
	decoder.DisallowUnknownFields()
	if err = decoder.Decode(into); err == nil {
		_, err = decoder.Token() // after the one value there is nothing
		if errors.Is(err, io.EOF) {
			r.Arrived()
			return nil
		}
		if err == nil {
			err = errors.New("it has more than one value")
		}
	}
	return badBody(err)
}

// posted is a route that reads its body first.
func posted[B any](do func(*Handler, *request, B) (answer, error)) handler {
	return func(h *Handler, r *request) (answer, error) {
		var body B
		if err := r.read(&body); err != nil {
			return answer{}, err
		}
		return do(h, r, body)
	}
}

// badBody says what is wrong with a body. Errors of the connection stay as they are.
func badBody(err error) error {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	said := err.Error()
	switch {
	case errors.As(err, &kind) && kind.Type == reflect.TypeFor[timing.Duration]():
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

const keyHeader = "Idempotency-Key"

// keyOf is the Idempotency-Key of a request: a UUID, with quotes or without. The record of what a request did has its
// key, so a request that is sent twice, to whatever instance, takes effect once.
func keyOf(h http.Header) (string, error) {
	sent := h.Values(keyHeader)
	if len(sent) != 1 || strings.TrimSpace(sent[0]) == "" {
		return "", &operate.Problem{Status: http.StatusBadRequest, Type: operate.ProblemKeyMissing,
			Title: "The Idempotency-Key is missing",
			Detail: "Send one header Idempotency-Key with a new UUID, and the same " +
				"UUID if you send the request again. Then it takes effect once. Nothing was changed."}
	}
	key := strings.ToLower(strings.Trim(strings.TrimSpace(sent[0]), `"`))
	if !operate.IsUUID(key) {
		return "", &operate.Wrong{Field: keyHeader, Why: `is "` + boundedtext.Text(sent[0], 100) + `": use a UUID`,
			Value: boundedtext.Text(sent[0], 100), Remedy: "use a UUID such as 8e03978e-40d5-43e8-bc93-6894a57f9324"}
	}
	return key, nil
}

const (
	usualLimit = 100
	mostLimit  = 1000
)

// limit is how many rows a request asks for.
func limit(q url.Values, most int) (int, error) {
	typed := q.Get("limit")
	if typed == "" {
		return min(usualLimit, most), nil
	}
	n, err := strconv.Atoi(typed)
	if err != nil || n < 1 || n > most {
		return 0, operate.WrongValue("limit", typed, "use a number from 1 to "+strconv.Itoa(most))
	}
	return n, nil
}

// after is the number of the last row that was seen.
func after(q url.Values) (int64, error) {
	typed := q.Get("after")
	if typed == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(typed, 10, 64)
	if err != nil || n < 1 {
		return 0, operate.WrongValue("after", typed, "use a number from 1 on, such as next of the page before")
	}
	return n, nil
}

// order reports whether a list is turned around.
func order(q url.Values, usual string) (newest bool, err error) {
	switch typed := q.Get("order"); typed {
	case "":
		return usual == "newest", nil
	case "newest", "oldest":
		return typed == "newest", nil
	default:
		return false, operate.WrongValue("order", typed, "use oldest or newest")
	}
}
