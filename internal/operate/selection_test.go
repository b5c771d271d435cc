package operate

import (
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// A selection in an address is the same selection whenever it is read.
func TestSelectionTravels(t *testing.T) {
	texts := rapid.SliceOfNDistinct(rapid.StringN(1, 20, -1), 0, 3, rapid.ID) // each value counts once
	rapid.Check(t, func(t *rapid.T) {
		var f letters.Filter
		for _, list := range filterLists(&f) {
			if some := texts.Draw(t, "list"); len(some) > 0 {
				*list = some
			}
		}
		if n := rapid.IntRange(0, len(letters.Statuses())).Draw(t, "statuses"); n > 0 {
			f.Statuses = letters.Statuses()[:n]
		}
		if rapid.Bool().Draw(t, "class") {
			f.Classes = []classify.Class{classify.ClassPermanent, classify.ClassUnknown}
		}
		if rapid.Bool().Draw(t, "metadata") {
			f.Metadata = map[string]string{"a": rapid.String().Draw(t, "value"), "b": "="}
		}
		if rapid.Bool().Draw(t, "unsealed") {
			f.SealKeys = append(f.SealKeys, "")
		}
		f.Description, f.Payload, f.StackHash = rapid.String().Draw(t, "text"), rapid.String().Draw(t, "payload"), rapid.String().Draw(t, "stack")
		f.NoOrigin, f.Leased = rapid.Bool().Draw(t, "no origin"), rapid.Bool().Draw(t, "leased")
		if rapid.Bool().Draw(t, "times") {
			f.Since, f.Until = time.Unix(1_700_000_000, 123_456_789).UTC(), time.Unix(1_800_000_000, 0).UTC()
		}
		f.MaxSeq = rapid.Int64Range(1, 1<<60).Draw(t, "max seq")
		want := Selection{Filter: f, Number: rapid.IntRange(1, 1<<40).Draw(t, "number")}
		if rapid.Bool().Draw(t, "single letters") {
			want = Selection{Seqs: []int64{1, 7, 1 << 60}, Filter: letters.Filter{Statuses: letters.Statuses()}, Number: 3}
		}
		got, err := ParseSelection(want.Values(), time.Now())
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("%+v became %+v, %v", want, got, err)
		}
	})
}

// An address that was cut or forged chooses nothing.
func TestSelectionIsChecked(t *testing.T) {
	for _, q := range []map[string][]string{
		{}, {"seq": {""}}, {"seq": {"0"}}, {"seq": {"-1"}}, {"seq": {"1 OR 1=1"}}, {"take": {"all"}}, {"take": {"all"}, "upto": {"9"}},
		{"take": {"all"}, "count": {"9"}}, {"take": {"all"}, "upto": {"9"}, "count": {"-1"}}, {"take": {"all"}, "upto": {"99999999999999999999"}, "count": {"1"}},
		{"take": {"all"}, "upto": {"9"}, "count": {"1"}, "status": {"unknown"}},
	} {
		if s, err := ParseSelection(q, time.Now()); err == nil {
			t.Errorf("%v chooses %+v", q, s)
		}
	}
}
