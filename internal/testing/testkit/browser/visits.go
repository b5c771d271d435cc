package browser

import (
	"encoding/json"
	"sync"
)

// visits are the documents that the main frame of a tab had, in order. Each has a loader of its own.
type visits struct {
	mu     sync.Mutex
	order  []string
	status map[string]int
	load   map[string]bool
}

func newVisits() *visits { return &visits{status: map[string]int{}, load: map[string]bool{}} }

// number returns how many documents there were.
func (v *visits) number() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.order)
}

// loaded reports whether the document with a number has loaded, or gave way to another one, and its status.
func (v *visits) loaded(number int) (status int, loaded bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.order) <= number {
		return 0, false
	}
	loader := v.order[number]
	return v.status[loader], v.load[loader] || len(v.order) > number+1
}

func (v *visits) hear(event string, params json.RawMessage) {
	var e struct {
		Name, LoaderID, Type string
		Frame                struct{ LoaderID, ParentID string }
		Response             struct{ Status int }
	}
	switch event {
	case "Page.frameNavigated", "Page.lifecycleEvent", "Network.responseReceived":
		if json.Unmarshal(params, &e) != nil {
			return
		}
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case event == "Page.frameNavigated" && e.Frame.ParentID == "":
		v.order = append(v.order, e.Frame.LoaderID)
	case event == "Page.lifecycleEvent" && e.Name == "load":
		v.load[e.LoaderID] = true
	case event == "Network.responseReceived" && e.Type == "Document":
		v.status[e.LoaderID] = e.Response.Status
	}
}
