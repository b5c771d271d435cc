package delayed

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/sqlstore/delayed/waiting"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/databases"
)

// Feature D14: a person's messages that wait are removed, by id or by metadata, and no others. One that a relay is
// publishing stays until the relay is done.
func TestErase(t *testing.T) {
	databases.Each(t, func(t *testing.T, d databases.Database, address string) {
		s, ctx := openStore(t, d, address), t.Context()
		theirs := testkit.Must(NewStore(ctx, d.Open(t, address), "mail"))
		put := func(s *Store, id string, metadata message.Metadata, after time.Duration) {
			t.Helper()
			msg := message.NewMessage(id, []byte("{}"))
			msg.Metadata = metadata
			testkit.NoError(t, s.Put(ctx, "orders", msg, after))
		}
		const n = 30
		ann := message.Metadata{"customer": "ann\x00", "tenant": "blue"}
		for i := range n {
			put(s, fmt.Sprint("ann-", i), ann, time.Hour)
			put(s, fmt.Sprint("other-", i), message.Metadata{"customer": "bob", "note": "ann\x00", "tenant": "blue"}, time.Hour)
		}
		put(theirs, "ann-1", ann, time.Hour)
		put(s, "ann-due", ann, 0)
		var b batch
		eventually(t, "one is due", func() bool {
			b = testkit.Must(s.take(ctx, 1, time.Hour, nil))
			return len(b.rows) == 1
		})
		before := 0
		count := func(_ context.Context, ids []string) error { before += len(ids); return nil }
		byMetadata := waiting.Selection{Metadata: map[string]string{"customer": "ann\x00"}}
		for i, step := range []struct {
			chosen  waiting.Selection
			options waiting.EraseOptions
			want    waiting.Erased
		}{
			{byMetadata, waiting.EraseOptions{DryRun: true, Before: count}, waiting.Erased{Messages: n, InHand: 1}},
			{waiting.Selection{IDs: []string{"ann-3", "ann-due", "none"}}, waiting.EraseOptions{Before: count}, waiting.Erased{Messages: 1, InHand: 1}},
			{byMetadata, waiting.EraseOptions{Before: count}, waiting.Erased{Messages: n - 1, InHand: 1}},
			{byMetadata, waiting.EraseOptions{}, waiting.Erased{Messages: 0, InHand: 1}},
		} {
			testkit.Equal(t, fmt.Sprint("step ", i), testkit.Must(s.Erase(ctx, step.chosen, step.options)), step.want)
		}
		testkit.Check(t, before == n+1+2+n, "the hook was called with %d messages", before)
		testkit.NoError(t, s.release(ctx, b.token, []int64{b.rows[0].seq}))
		testkit.Returns(t, (waiting.Erased{Messages: 1, InHand: 0}))(s.Erase(ctx, byMetadata, waiting.EraseOptions{}))
		for who, want := range map[*Store]int{s: n, theirs: 1} {
			testkit.Equal(t, who.Service(), strings.Join(whatWaits(t, who), ", "), fmt.Sprintf(`"orders" %d`, want))
		}
		stop := errors.New("no more")
		stops := waiting.EraseOptions{Before: func(context.Context, []string) error { return stop }}
		got, err := s.Erase(ctx, waiting.Selection{IDs: []string{"other-1"}}, stops)
		testkit.Check(t, errors.Is(err, stop) && got.Messages == 0, "%+v, %v", got, err)
	})
}

// Feature D14: what chooses nothing, or cannot choose, is refused.
func TestErase_refuses(t *testing.T) {
	s := openStore(t, databases.SQLite, databases.SQLite.Create(t))
	for want, chosen := range map[string]waiting.Selection{
		"chooses nothing": {}, "both set": {IDs: []string{"1"}, Metadata: map[string]string{"a": "b"}}, "501 ids": {IDs: make([]string, 501)},
	} {
		testkit.Says(t, testkit.Err(s.Erase(t.Context(), chosen, waiting.EraseOptions{})), want)
	}
}
