package letters_test

import (
	"bytes"
	"compress/flate"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"pgregory.net/rapid"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/codec/metadatacodec"
	"github.com/watermill-spillway/spillway/internal/hidden"
	"github.com/watermill-spillway/spillway/internal/testing/fixture"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Feature V9: letters are found by their metadata, whatever the bytes, and none by what only looks like it.
func TestStore_searchMetadata(t *testing.T) { onEach(t, testStore_searchMetadata) }

func testStore_searchMetadata(t *testing.T, on fixture.Database) {
	db := on.Create(t)()
	store, ctx := storeOn(t, db), t.Context()
	with := func(id string, metadata message.Metadata) *message.Message {
		return letter(id, "a", func(l *poison.Letter) { l.Original.Metadata = metadata })
	}
	publish(t, store, "orders.dlq",
		with("plain", message.Metadata{"tenant": "blue", "größe": "日本", "empty": "", "": "no key", "x-b64": "AAEC", "bytes": "a\x00\xff'%_"}),
		with("hostile", message.Metadata{"note": "\x06tenant\x04blue", "largest": "\x06tenant\x03red", "x\x06tenant": "\x04blue"}),
		with("other", message.Metadata{"tenant": "blue2", "größe": "", "empty": "e", "bytes": "a\x00\xff'%"}))
	raw := message.NewMessage("raw", []byte("a")) // as a queue writes it for a sink that refuses the producer's metadata
	raw.Metadata = message.Metadata{poison.KeyFailureClass: "permanent", poison.KeyOriginalMetadata: packedMetadata(message.Metadata{"tenant": "raw\xff"})}
	publish(t, store, "orders.dlq", raw)
	many := make([]*message.Message, 600) // more than are read at once, and none of them has it: the value and the next key do
	for i := range many {
		many[i] = with(fmt.Sprint("many-", i), message.Metadata{"a": "color", "green": "x"})
	}
	publish(t, store, "orders.dlq", many...)
	publish(t, store, "orders.dlq", with("green", message.Metadata{"color": "green"}))

	for id, metadata := range map[string]map[string]string{
		"plain": {"tenant": "blue"}, "plain ": {"größe": "日本", "empty": ""}, "plain  ": {"": "no key"}, "plain   ": {"x-b64": "AAEC"},
		"plain    ": {"bytes": "a\x00\xff'%_"}, "other": {"tenant": "blue2"}, "other ": {"größe": ""}, "hostile": {"note": "\x06tenant\x04blue"},
		"raw": {"tenant": "raw\xff"}, "green": {"color": "green"}, "": {"tenant": "red"}, " ": {"tenant": ""}, "  ": {"none": ""},
	} {
		f, id := letters.Filter{Metadata: metadata}, strings.TrimSpace(id)
		heads, err := store.Heads(ctx, f)
		testkit.Check(t, err == nil && (id != "" || len(heads) == 0) &&
			(id == "" || len(heads) == 1 && heads[0].MessageID == id),
			"%q: %d found, %+v, %v, want %q", metadata, len(heads), heads, err, id)
		n, err := store.Count(ctx, f)
		groups, err2 := store.Groups(ctx, f)
		testkit.Check(t, err == nil && err2 == nil && n == len(heads) && len(groups) == n &&
			(n <= 0 || groups[0].Count == 1), "%q: %d counted, %v, in groups %+v, %v", metadata, n, err, groups, err2)
		whole, err := store.List(ctx, letters.Filter{Metadata: metadata, Limit: 10})
		testkit.Check(t, err == nil && len(whole) == n && (n <= 0 || f.Matches(whole[0].Letter)),
			"%q: a letter that is found does not match: %+v, %v", metadata, whole, err)
	}
	testkit.Returns(t, 1)(store.MarkAll(ctx, letters.Filter{Metadata: map[string]string{"color": "green"}}, letters.StatusDiscarded, letters.Act{By: "ann"}))
	manyColors := letters.Filter{Metadata: map[string]string{"a": "color"}} // more than one statement returns
	oldest := heads(t, store, manyColors, 1000)
	slices.Reverse(oldest)
	if manyColors.NewestFirst = true; len(oldest) != 600 || !slices.Equal(heads(t, store, manyColors, 1000), oldest) || !slices.Equal(heads(t, store, manyColors, 90), oldest) {
		t.Errorf("%d letters, or not the same ones the newest first", len(oldest))
	}
	testkit.Returns(t, 600)(store.Count(ctx, letters.Filter{Metadata: map[string]string{poison.KeyFailureClass: "permanent", "a": "color"}}))
	wantNumbers(t, db, store)
}

// packedMetadata are an id and metadata as a raw letter has them.
func packedMetadata(metadata message.Metadata) string {
	packed := metadatacodec.Append(nil, "raw")
	for key, value := range metadata {
		packed = metadatacodec.Append(metadatacodec.Append(packed, key), value)
	}
	var b bytes.Buffer
	w, _ := flate.NewWriter(&b, flate.BestSpeed)
	_, _ = w.Write(packed)
	_ = w.Close()
	return base64.StdEncoding.EncodeToString(b.Bytes())
}

// Feature V9: the cause that a hook sees is the one under which the Store keeps the letter, whatever its texts.
func TestCauseOf(t *testing.T) {
	store := fixture.SQLite.NewStore(t)
	texts := rapid.OneOf(rapid.String(), rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) }),
		rapid.SampledFrom([]string{"", "boom", "a\nb", "\x00", strings.Repeat("long ", 2000), strings.Repeat("é", 3000), strings.Repeat("x", 5000), "order 7 of 'Ann'"}))
	rapid.Check(t, func(t *rapid.T) {
		id := rapid.StringMatching(`[a-z]{12}`).Draw(t, "id")
		l := poison.Letter{
			Original: message.NewMessage(id, []byte("{}")), DeadLetterTopic: "orders.dlq",
			Origin: poison.Origin{Topic: texts.Draw(t, "topic"), Handler: texts.Draw(t, "handler"), MessageID: id},
			Failure: poison.Failure{Class: classify.ClassPermanent, Reason: texts.Draw(t, "reason"), Type: texts.Draw(t, "type"),
				StackHash: "abc", Stack: strings.Repeat("frame\n", 3000), Description: texts.Draw(t, "description")},
		}
		testkit.NoError(t, store.Publish(l.DeadLetterTopic, l.Encode()))
		heads := testkit.Must(store.Heads(t.Context(), letters.Filter{IDs: []string{id}, Causes: []string{letters.CauseOf(l)}}))
		testkit.Require(t, len(heads) != 0, "the letter is not among those of its cause %s", letters.CauseOf(l))
	})
}

// ending is a context that is over once it was asked so many times.
type ending struct {
	context.Context
	left int
}

func (e *ending) Err() error {
	if e.left--; e.left < 0 {
		return context.DeadlineExceeded
	}
	return nil
}

// Feature V9, decision 23: a count that is cut off, wherever it is, returns no number.
func TestCountCutOff(t *testing.T) {
	store := fixture.SQLite.NewStore(t)
	fixture.Publish(t, store, "orders.dlq", fixture.Several(12)...)
	testkit.Must(hidden.Of(store).DB().Exec(`UPDATE spillway_dead_letters SET seq = seq * 30000`)) // a statement reads 50,000 Seqs
	filter := letters.Filter{MaxSeq: 10 * 30000}                                                   // so that many are behind it
	for asked := 0; ; asked++ {
		n, err := store.Count(&ending{t.Context(), asked}, filter)
		switch {
		case err == nil && (n != 10 || asked == 0), err != nil && (n != 0 || !errors.Is(err, context.DeadlineExceeded)), asked > 1000:
			t.Fatalf("cut off when it was asked %d times: %d letters, %v", asked, n, err)
		case err == nil:
			return
		}
	}
}
