package foreign

import (
	"reflect"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
)

type settings struct {
	config struct{ On bool }
	Name   int
}

// A row holds for any major version of its module, and for no other package. A version that it does not name is a miss,
// once.
func TestRowOfVersions(t *testing.T) {
	const here = "github.com/watermill-spillway/spillway"
	of := reflect.TypeFor[settings]()
	for name, c := range map[string]struct {
		row    row
		is     bool
		misses int
	}{
		"known":            {row{here, []int{1}, "internal/upstream/foreign", "settings"}, true, 0},
		"another major":    {row{here, []int{2, 3}, "internal/upstream/foreign", "settings"}, true, 1},
		"another type":     {row{here, []int{1}, "internal/upstream/foreign", "setting"}, false, 0},
		"another package":  {row{here, []int{1}, "internal", "settings"}, false, 0},
		"another module":   {row{here[:len(here)-1], []int{1}, "internal/upstream/foreign", "settings"}, false, 0},
		"of any module":    {row{"", nil, "", "settings"}, true, 0},
		"module is longer": {row{here + "/internal/foreign/more", []int{1}, "", "settings"}, false, 0},
	} {
		for i := range 2 {
			if is := c.row.is(of); is != c.is {
				t.Errorf("%s: %t", name, is)
			}
			if misses := Take(); len(misses) != c.misses*(1-i) {
				t.Errorf("%s, call %d: %v", name, i, misses)
			}
		}
	}
	for element, want := range map[string]int{"v2": 2, "v12": 12, "v": 0, "vnext": 0, "pkg": 0, "v0x": 0, "v9999": 0} {
		if got := majorOf(element); got != want {
			t.Errorf("%s: %d", element, got)
		}
	}
}

// A field that is not there, or of another kind, reads as its zero value, and is a miss.
func TestFieldsOfAnotherShape(t *testing.T) {
	s := settings{Name: 7}
	s.config.On = true
	v := view{row: &row{"module", nil, "", "settings"}, v: reflect.ValueOf(&s).Elem()}
	if !v.bool("config", "On") || v.int("Name") != 7 || len(Take()) != 0 {
		t.Error("what is there was not read")
	}
	if v.bool("config", "Off") || v.bool("Name") || v.string("Name") != "" || v.duration("Name") != 0 || v.int("Name", "x") != 0 {
		t.Error("read what is not there")
	}
	if misses := Take(); len(misses) != 3 { // each field once
		t.Error(misses)
	}
}

// Promise P1, decision 28: a publisher whose settings are not where the library looks for them may lose messages, and
// says which one is missing. watermill-nats v2.2.0 renamed one.
func TestPublishersOfAnotherShape(t *testing.T) {
	type (
		nats struct {
			AutoProvision, Disabled, TrackMsgId bool
		}
		natsSince2_2 struct {
			AutoProvision, Disabled, TrackMsgID bool
		}
		natsLater struct {
			AutoProvision, Disabled, Tracks bool
		}
		config[T any] struct {
			JetStream T
			Marshaler any
		}
		redis struct {
			Maxlens       map[string]int64
			DefaultMaxlen int64
		}
		redisLater struct{ Limits map[string]int64 }
	)
	for i, c := range []struct {
		name, unknown string
		config        any
		deduplicates  string
		length        int64
	}{
		{"nats", "", struct{ config config[nats] }{config[nats]{nats{TrackMsgId: true}, nil}}, "JetStreamConfig.TrackMsgId", 0},
		{"nats", "", struct{ config config[natsSince2_2] }{config[natsSince2_2]{natsSince2_2{TrackMsgID: true}, nil}}, "JetStreamConfig.TrackMsgID", 0},
		{"nats", "config.JetStream.TrackMsgID", struct{ config config[natsLater] }{}, "", 0},
		{"nats", "config.JetStream.TrackMsgID", struct{}{}, "", 0},
		{"jetstream", "", struct{ nc, js, m, logger, configureStream any }{}, "", 0}, // before v2.2.0 it tracked nothing
		{"jetstream", "", struct{ trackMsgID bool }{true}, "PublisherConfig.TrackMessageID", 0},
		{"jetstream", "trackMsgID", struct{ tracks bool }{true}, "", 0},
		{"redisstream", "", struct{ config redis }{redis{DefaultMaxlen: 7}}, "", 7},
		{"redisstream", "config.DefaultMaxlen", struct{ config redisLater }{}, "", 0},
	} {
		p := &Publisher{}
		for j := range publishers {
			if known := &publishers[j]; known.folder == "pkg/"+c.name {
				known.read(view{row: &known.row, v: reflect.ValueOf(c.config)}, p)
			}
		}
		Take()
		if p.Unknown != c.unknown || p.Deduplicates != c.deduplicates || p.MaxLength("orders") != c.length {
			t.Errorf("%d: %+v, and %d messages of a topic", i, p, p.MaxLength("orders"))
		}
		Take()
	}
}

type unheardOf struct{ message.Publisher }

// Promise P1, decision 28: a publisher that no row has, of a module with publishers that lose messages, is unknown.
func TestTypesThatNoRowHas(t *testing.T) {
	if p := PublisherOf(reflect.ValueOf(unheardOf{})); p != nil {
		t.Errorf("of another module: %+v", p)
	}
	was := losing
	defer func() { losing = was }()
	losing = append(was[:len(was):len(was)], "github.com/watermill-spillway/spillway")
	if p := PublisherOf(reflect.ValueOf(unheardOf{})); p == nil || p.Unknown != "foreign.unheardOf" {
		t.Errorf("%+v", p)
	}
	if p := PublisherOf(reflect.ValueOf(view{})); p != nil {
		t.Errorf("no publisher: %+v", p)
	}
}
