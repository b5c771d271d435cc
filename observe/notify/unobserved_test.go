package notify_test

import (
	"strings"
	"testing"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/observe/notify"
)

func observing(t *testing.T) *notify.Notifier {
	t.Helper()
	n, err := notify.New(notify.Config{Sinks: []notify.Sink{notify.Slog(nil)}})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// Feature O4: a Notifier whose hooks the channel has not is silently dead. Watch says so, if Observe came after New, or
// was forgotten.
func TestWatchWithoutObserve(t *testing.T) {
	for _, late := range []bool{false, true} {
		n := observing(t)
		config := spillway.Config{Publisher: nowhere{}}
		dlc, err := spillway.New(t.Context(), config)
		if err != nil {
			t.Fatal(err)
		}
		if late {
			if err := n.Observe(&config); err != nil {
				t.Fatal(err)
			}
		}
		if err := n.Watch(t.Context(), dlc); err == nil || !strings.Contains(err.Error(), "call Observe with the Config, before spillway.New") {
			t.Errorf("late %v: %v", late, err)
		}
	}
}

// Feature O4, bad input: a second Observe, of any Config, and nil are errors with a sentence, and leave the Notifier
// usable.
func TestObserveTwice(t *testing.T) {
	n := observing(t)
	if err := n.Observe(nil); err == nil || !strings.Contains(err.Error(), "the Config is nil") {
		t.Error(err)
	}
	if err := (*notify.Notifier)(nil).Observe(&spillway.Config{}); err == nil || !strings.Contains(err.Error(), "check the error of New") {
		t.Error(err)
	}
	config := spillway.Config{Publisher: nowhere{}}
	if err := n.Observe(&config); err != nil {
		t.Fatal(err)
	}
	for _, config := range []*spillway.Config{&config, {}} {
		if err := n.Observe(config); err == nil || !strings.Contains(err.Error(), "Observe was called before") {
			t.Error(err)
		}
	}
	dlc, err := spillway.New(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Watch(t.Context(), dlc); err != nil {
		t.Error(err)
	}
}
