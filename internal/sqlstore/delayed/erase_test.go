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
		byMetadata := func(_ string, metadata map[string]string) bool { return metadata["customer"] == "ann\x00" }
		for i, step := range []struct {
			erasing waiting.Erasing
			want    waiting.Erased
		}{
			{waiting.Erasing{Match: byMetadata, DryRun: true, Before: count}, waiting.Erased{Messages: n, InHand: 1}},
			{waiting.Erasing{IDs: []string{"ann-3", "ann-due", "none"}, Before: count}, waiting.Erased{Messages: 1, InHand: 1}},
			{waiting.Erasing{Match: byMetadata, Before: count}, waiting.Erased{Messages: n - 1, InHand: 1}},
			{waiting.Erasing{Match: byMetadata}, waiting.Erased{InHand: 1}},
		} {
			testkit.Equal(t, fmt.Sprint("step ", i), testkit.Must(s.Erase(ctx, step.erasing)), step.want)
		}
		testkit.Check(t, before == n+1+2+n, "the hook was called with %d messages", before)
		testkit.NoError(t, s.release(ctx, b.token, []int64{b.rows[0].seq}))
		testkit.Returns(t, (waiting.Erased{Messages: 1, InHand: 0}))(s.Erase(ctx, waiting.Erasing{Match: byMetadata}))
		for who, want := range map[*Store]int{s: n, theirs: 1} {
			testkit.Equal(t, who.Service(), strings.Join(whatWaits(t, who), ", "), fmt.Sprintf(`"orders" %d`, want))
		}
		stop := errors.New("no more")
		got, err := s.Erase(ctx, waiting.Erasing{IDs: []string{"other-1"},
			Before: func(context.Context, []string) error { return stop }})
		testkit.Check(t, errors.Is(err, stop) && got.Messages == 0, "%+v, %v", got, err)
	})
}
