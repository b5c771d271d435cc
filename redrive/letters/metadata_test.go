package letters_test

import (
	"bytes"
	"compress/flate"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/metadatacodec"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive/internal/fixture"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Feature V9: letters are found by the metadata that they have, whatever bytes keys and values have, and no other
// letter is: not one whose values look like a key and a value, nor one in which a value and the next key do.
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
		if err != nil || id == "" && len(heads) != 0 || id != "" && (len(heads) != 1 || heads[0].MessageID != id) {
			t.Errorf("%q: %d found, %+v, %v, want %q", metadata, len(heads), heads, err, id)
		}
		n, err := store.Count(ctx, f)
		groups, err2 := store.Groups(ctx, f)
		if err != nil || err2 != nil || n != len(heads) || len(groups) != n || n > 0 && groups[0].Count != 1 {
			t.Errorf("%q: %d counted, %v, in groups %+v, %v", metadata, n, err, groups, err2)
		}
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
