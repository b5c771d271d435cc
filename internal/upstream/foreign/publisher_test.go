package foreign

import (
	"reflect"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
)

// renamed is a publisher of a module that the table has, in a version that nobody has looked at.
type renamed struct {
	message.Publisher
	config struct{ Drops bool }
}

// Decision 28, promise P1: where a check guards against loss, and what it reads is not there, the publisher is unknown,
// and is refused. So is a type that no row has, of a module that has publishers that lose messages.
func TestWhatGuardsIsGone(t *testing.T) {
	const here = "github.com/watermill-spillway/spillway"
	was, wasLosing := publishers, losing
	defer func() { publishers, losing = was, wasLosing }()
	read := func(path ...string) string {
		publishers = append(was[:len(was):len(was)], was[0])
		publishers[len(was)].row = row{here, []int{1}, "internal/upstream/foreign", "renamed"}
		publishers[len(was)].read = func(v view, p *Publisher) { p.sees(v, reflect.Bool, path...) }
		return PublisherOf(reflect.ValueOf(&renamed{}).Elem()).Unknown
	}
	if got := read("config", "Drops"); got != "" {
		t.Error(got)
	}
	const want = "the field config.DropsAll of " + here + "/internal/upstream/foreign.renamed"
	if got := read("config", "DropsAll"); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := read("config"); got == "" {
		t.Error("a field of another kind is known")
	}
	publishers = was
	if PublisherOf(reflect.ValueOf(&renamed{}).Elem()) != nil {
		t.Error("a type of another module is known")
	}
	losing = append(losing, here)
	if p := PublisherOf(reflect.ValueOf(&renamed{}).Elem()); p == nil || p.Unknown != "the type foreign.renamed" {
		t.Errorf("%+v", p)
	}
	if PublisherOf(reflect.ValueOf(&settings{}).Elem()) != nil { // no publisher
		t.Error("a type that is no publisher is known")
	}
}
