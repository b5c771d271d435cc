package console

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/watermill-spillway/spillway/internal/testing/fixture"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// packed is a format that no person reads: a mark, and each byte of a text turned over.
func packed(text string) string {
	turned := []byte("\xff\x00" + text)
	for i := range turned[2:] {
		turned[i+2] ^= 0xff
	}
	return string(turned)
}

// unpacks is a service that decodes what is packed, and breaks when it is told to.
func unpacks(c *Config) {
	c.Decode = func(_ context.Context, l letters.Letter) (string, string, error) {
		text, ok := bytes.CutPrefix(l.Original.Payload, []byte("\xff\x00"))
		if !ok {
			return "", "", nil
		}
		text = []byte(packed(string(text))[2:])
		if json.Valid(text) {
			return string(text), "application/json", nil
		} else if bytes.HasPrefix(text, []byte("broken")) {
			return "", "", errors.New("no schema <b>7</b>")
		}
		return string(text), "text/plain", nil
	}
	c.Encode = func(_ context.Context, _ letters.Letter, text string) ([]byte, error) {
		if strings.Contains(text, "unknown") {
			return nil, errors.New("there is no field <unknown>")
		}
		return []byte(packed(text)), nil
	}
}

// Feature V17: a page shows the decoded text, masked. Whatever is in it stays text, and the bytes are a tab away.
func TestDecode(t *testing.T) {
	b := newBench(t, unpacks)
	fixture.Publish(t, b.store, "orders.dlq", fixture.Letter("1", packed(`{"order":7,"password":"secret-1"}`)),
		fixture.Letter("2", packed(`{"order":8}`)), fixture.Letter("3", packed("broken")), fixture.Letter("4", `{"plain":1}`))
	b.get("/letters/2").want(t, http.StatusOK, "Decoded as application/json.", "&#34;order&#34;: 8", "?view=hex")
	b.get("/letters/2?view=hex").want(t, http.StatusOK, hex.EncodeToString([]byte(packed("{")))[:2], "|..")
	b.get("/letters/3").want(t, http.StatusOK, "could not be decoded", "no schema &lt;b&gt;7&lt;/b&gt;", "ff 00 9d").wantHarmless(t, "an error")
	b.get("/letters/4").want(t, http.StatusOK, "&#34;plain&#34;: 1").wantNot(t, "ecoded as")
	for _, path := range []string{"/letters/1", "/letters/1?view=hex", "/letters/1?view=text", "/api/v1/letters/1"} {
		p := b.get(path, as(Look)).want(t, http.StatusOK, "[redacted]", "order")
		p.wantNot(t, "secret-1", "ff 00 84", "payload_b64")
	}
	b.get("/api/v1/letters/1/payload", as(Look)).want(t, http.StatusForbidden)
	b.get("/letters/1", as(LookWithoutPayload)).want(t, http.StatusOK).wantNot(t, "ecoded as", "order&#34;")
	var got struct {
		Decoded struct {
			MediaType string `json:"media_type"`
			Text      string `json:"text"`
			Failed    string `json:"failed"`
		} `json:"decoded"`
		Payload []byte `json:"payload_b64"`
	}
	testkit.NoError(t, json.Unmarshal([]byte(b.get("/api/v1/letters/2", as(Look)).body), &got))
	testkit.Check(t, got.Decoded.MediaType == "application/json" && got.Decoded.Text == `{"order":8}` &&
		string(got.Payload) == packed(`{"order":8}`), "%+v", got)
	testkit.NoError(t, json.Unmarshal([]byte(b.get("/api/v1/letters/3").body), &got))
	testkit.Check(t, got.Decoded.Failed == "no schema <b>7</b>" && string(got.Payload) == packed("broken"), "%+v", got)
	for i, text := range hostile {
		fixture.Publish(t, b.store, "orders.dlq", fixture.Letter("h", packed(strings.ToValidUTF8(text, "?"))))
		path := "/letters/" + id(int64(5+i))
		b.get(path).want(t, http.StatusOK, "Decoded as text/plain.").wantHarmless(t, path)
		if p := b.get(path + "/edit"); i < 12 && p.StatusCode == http.StatusOK && !strings.Contains(p.body, "cannot be edited here") {
			form := p.fields(t)
			b.post(path+"/edit", with(form, "do", "diff", "payload", form.Get("payload")+"x")).wantHarmless(t, path)
		}
	}
}

// Feature V17: an edit is shown as text, and what is redriven are the bytes that the encoder made of it, on record.
func TestEdit_decoded(t *testing.T) {
	b := newBench(t, unpacks)
	fixture.Publish(t, b.store, "orders.dlq", fixture.Letter("1", packed("{\n \"to\": \"Ann\",\n \"n\": 1\n}")))
	out := &fixture.Outbox{}
	b.works(out)
	form := b.get("/letters/1/edit").want(t, http.StatusOK, "What you type is encoded again.").fields(t)
	b.post("/letters/1/edit", with(form, "do", "diff")).want(t, http.StatusBadRequest, "Nothing is changed yet.")
	typed := strings.Replace(form.Get("payload"), "Ann", "Zoë", 1)
	b.post("/letters/1/edit", with(form, "do", "diff", "payload", "unknown <b>")).want(t, http.StatusBadRequest,
		"The payload is unknown &lt;b&gt;, and cannot be encoded", "there is no field &lt;unknown&gt;", "Correct the text")
	b.post("/letters/1/edit", with(form, "do", "start", "reason", "INC-7", "payload", "unknown")).want(t, http.StatusBadRequest)
	b.post("/letters/1/edit", with(form, "do", "diff", "payload", "broken")).want(t, http.StatusBadRequest, "what it wrote cannot be decoded")
	b.post("/letters/1/edit", with(form, "do", "start", "reason", "INC-7", "payload", typed, "decoded", "")).
		want(t, http.StatusBadRequest, "not decoded as it was", "Zoë")
	testkit.Require(t, len(b.all()) == 0, "what cannot be encoded began a campaign")
	p := b.post("/letters/1/edit", with(form, "do", "diff", "payload", typed)).want(t, http.StatusOK,
		"<del>-   &#34;to&#34;: &#34;Ann&#34;,</del>", "<ins>+   &#34;to&#34;: &#34;Zoë&#34;,</ins>")
	form = with(p.fields(t), "do", "start", "reason", "INC-7")
	at := b.post("/letters/1/edit", form).goes(t, "campaigns/")
	testkit.Eventually(t, "it is redriven", func() bool { return strings.Contains(b.get(at).body, "It is through with all letters.") })
	sent, want := out.All(), packed("{\n \"to\": \"Zoë\",\n \"n\": 1\n}")
	testkit.Require(t, len(sent) == 1 && string(sent[0].Msg.Payload) == want, "%+v", sent)
	history := testkit.Must(b.store.History(t.Context(), 1))
	encoded, _ := json.Marshal([]byte(want))
	testkit.Check(t, len(history) >= 3 && history[2].Kind == letters.EventEdited && history[2].By == "ann" &&
		history[2].Detail == `{"payload_b64":`+string(encoded)+`}`, "%+v", history)
	life := b.get("/api/v1/letters/1", as(Look)).want(t, http.StatusOK, "[redacted], "+strconv.Itoa(len(want))+" bytes")
	life.wantNot(t, strings.Trim(string(encoded), `"`))
	b.post("/letters/1/edit", form).goes(t, at[1:])
	testkit.Check(t, len(out.All()) == 1, "it was published twice")
}

// Feature V17: a text that has secrets is edited after the person said why, on record.
func TestEdit_decodedMasked(t *testing.T) {
	b := newBench(t, unpacks)
	fixture.Publish(t, b.store, "orders.dlq", fixture.Letter("1", packed(`{"password":"secret-1"}`)))
	p := b.get("/letters/1/edit").want(t, http.StatusOK, "To edit it you must see it without masks.")
	p.wantNot(t, "secret-1")
	p = b.post("/letters/1/edit", with(p.fields(t), "do", "show", "reason", "INC-7")).want(t, http.StatusOK, "secret-1")
	form := p.fields(t)
	b.wantShown(1)
	p = b.post("/letters/1/edit", with(form, "do", "diff", "payload", `{"password":"secret-1","n":1}`)).want(t, http.StatusOK, "<ins>")
	testkit.Check(t, strings.Count(p.body, "secret-1") == 1, "the difference has what is masked: %s", p.body)
	testkit.Check(t, p.fields(t).Get("decoded") == "application/json", "%v", p.fields(t))
}
