package destination

import (
	"reflect"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/components/forwarder"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/watermill-spillway/spillway/internal/testing/facts"
	"github.com/watermill-spillway/spillway/internal/upstream/foreign"
)

// What is known of publishers is so.
func TestFactPublishers(t *testing.T) {
	var rows []*foreign.Row
	for i := range publishers {
		rows = append(rows, &publishers[i].Row)
	}
	facts := facts.Of(rows...)
	channel := gochannel.NewGoChannel(gochannel.Config{}, nil)
	defer channel.Close()
	into := forwarder.NewPublisher(channel, forwarder.PublisherConfig{ForwarderTopic: "into"})
	for _, row := range []struct {
		pub  message.Publisher
		want Publisher
	}{{channel, Publisher{Creates: true}}, {into, Publisher{Into: "into"}}} {
		got := PublisherOf(reflect.ValueOf(row.pub).Elem())
		facts.Met(t, row.pub, got != nil && reflect.DeepEqual(*got, row.want))
	}
	facts.Check(t)
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
			if known := &publishers[j]; strings.HasSuffix(known.Row.String(), "/pkg/"+c.name+".Publisher") {
				known.read(foreign.View{Row: &known.Row, Value: reflect.ValueOf(c.config)}, p)
			}
		}
		foreign.Take()
		if p.Unknown != c.unknown || p.Deduplicates != c.deduplicates || p.MaxLength("orders") != c.length {
			t.Errorf("%d: %+v, and %d messages of a topic", i, p, p.MaxLength("orders"))
		}
		foreign.Take()
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
	if p := PublisherOf(reflect.ValueOf(unheardOf{})); p == nil || p.Unknown != "destination.unheardOf" {
		t.Errorf("%+v", p)
	}
	if p := PublisherOf(reflect.ValueOf(Notice{})); p != nil {
		t.Errorf("no publisher: %+v", p)
	}
}
