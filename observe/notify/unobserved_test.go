package notify_test

import (
	"strings"
	"testing"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/observe/notify"
)

func observing(t *testing.T) *notify.Notifier {
	t.Helper()
	n := testkit.Must(notify.New(notify.Config{Sinks: []notify.Sink{(&inbox{}).sink}}))
	return n
}

// Feature O4: a Notifier that no channel has is silently dead. Watch says so.
func TestWatchWithoutObserve(t *testing.T) {
	n := observing(t)
	dlc := testkit.Must(spillway.New(t.Context(), spillway.Config{Publisher: nowhere{}}))
	if err := n.Watch(t.Context(), dlc); err == nil || !strings.Contains(err.Error(), "name it in Config.Observers") {
		t.Error(err)
	}
}

// Feature O4, bad input: one Notifier for two channels is an error with a sentence, and leaves the first channel its
// own.
func TestObserveTwice(t *testing.T) {
	n := observing(t)
	config := spillway.Config{Publisher: nowhere{}, Observers: []spillway.Observer{n}}
	dlc := testkit.Must(spillway.New(t.Context(), config))
	if _, err := spillway.New(t.Context(), config); err == nil || !strings.Contains(err.Error(), "a Notifier of its own") {
		t.Error(err)
	}
	if err := n.Watch(t.Context(), dlc); err != nil {
		t.Error(err)
	}
}
