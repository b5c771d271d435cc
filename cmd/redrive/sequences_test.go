package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/sequence"
	"github.com/watermill-spillway/spillway/internal/testkit"
)

// Feature R13, conventions: keys whose messages wait are listed, those with the most first, and say nothing that a
// terminal obeys.
func TestSequences(t *testing.T) {
	s := newShop(t)
	if none := s.pipe("sequences"); none.code != 0 || none.out != "" || !strings.Contains(none.err, "no messages of shop wait") {
		t.Errorf("without the table: %+v", none)
	}
	store := testkit.Must(sequence.NewStore(t.Context(), s.db, "shop"))
	of := sequence.Source{Group: "billing", Topic: "orders", Partition: 3}
	for position, key := range []string{"customer-7", "\x1b[31m", "customer-7", "", "customer-7"} {
		msg := message.NewMessage("id-"+key, []byte("{}"))
		row := &sequence.Row{Lane: sequence.LaneOf([]byte(key)), RecordKey: []byte(key), Position: int64(position), Msg: msg,
			Fingerprint: sequence.FingerprintOf(msg), SentAt: failedAt, Key: sequence.Key{Consumer: "shop/billing", ID: msg.UUID}}
		wait := time.Hour
		if key == "" {
			wait = -time.Hour
		}
		testkit.NoError(t, store.Park(t.Context(), of, row, wait))
	}
	var got []sequence.Parked
	for line := range strings.Lines(s.pipe("sequences", "--json").out) {
		var p sequence.Parked
		testkit.NoError(t, json.Unmarshal([]byte(line), &p))
		got = append(got, p)
	}
	if len(got) != 3 || *got[0].Key != "customer-7" || got[0].Messages != 3 || got[0].Position != 0 || got[0].Late || !got[2].Late {
		t.Errorf("%+v", got)
	}
	out := s.terminal(100, "", "sequences", "--color", "never").out
	obeyed(t, "sequences", out)
	if lines := strings.Split(out, "\n"); len(lines) < 4 || !strings.Contains(lines[1], "customer-7") || !strings.Contains(lines[3], "late") {
		t.Error(out)
	}
	if one := s.pipe("sequences", "--limit", "1"); !strings.Contains(one.err, "--limit 10 shows more") {
		t.Errorf("%+v", one)
	}
}
