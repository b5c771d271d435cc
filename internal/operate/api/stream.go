package api

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/watermill-spillway/spillway/internal/operate"
)

const (
	// mostStreams is how many streams there are at the same time.
	mostStreams = 32
	// streaming is how long a stream lasts. Then the program asks again.
	streaming = 5 * time.Minute
	// looking is the time between two looks at a campaign.
	looking = time.Second
	// beating is the time after which a line is sent if nothing changes, so that proxies keep the connection.
	beating = 15 * time.Second
	// writing is how long one event may take to be written.
	writing = 10 * time.Second
)

// watch streams the progress of a campaign, until the campaign has ended, the time is over, or the program goes.
func (h *Handler) watch(r *request) (answer, error) {
	one, err := h.Desk.Campaigns.Get(r.http.Context(), r.http.PathValue("id"))
	if err != nil {
		return answer{}, err
	}
	select {
	case h.streams <- struct{}{}:
	default:
		return answer{}, &operate.Problem{Status: http.StatusServiceUnavailable, Type: operate.ProblemBusy,
			Title: "Too many streams", Detail: fmt.Sprintf("There are %d streams already. Try again, or ask for the campaign "+
				"every few seconds, with If-None-Match.", mostStreams)}
	}
	return answer{stream: func(w http.ResponseWriter) {
		defer func() { <-h.streams }()
		header := w.Header()
		header.Set("Content-Type", "text/event-stream")
		header.Set("X-Accel-Buffering", "no") // nginx would wait for more
		w.WriteHeader(http.StatusOK)
		if r.http.Method != http.MethodHead {
			h.follow(r, &events{w: w, to: http.NewResponseController(w)}, one.ID)
		}
	}}, nil
}

// follow writes an event whenever a campaign changes.
func (h *Handler) follow(r *request, out *events, id string) {
	ctx := r.http.Context()
	tick := time.NewTicker(looking)
	defer tick.Stop()
	defer out.done()
	var last []byte
	for said := time.Now(); ; {
		one, err := h.Desk.Campaigns.Get(ctx, id)
		if err == nil {
			now, _ := json.Marshal(h.Desk.Shown(r.person, one))
			switch {
			case !bytes.Equal(now, last):
				last, said = now, time.Now()
				err = out.send("campaign", now)
			case time.Since(said) > beating:
				said = time.Now()
				err = out.beat()
			}
			if err != nil {
				return // the reader is gone
			}
			if one.State.Ended() && one.NotHeard == 0 {
				_ = out.send("end", []byte(`{"why":"ended"}`))
				return
			}
		}
		select {
		case <-ctx.Done():
			why := "again" // the time is over
			if context.Cause(ctx) == context.Canceled {
				return
			}
			_ = out.send("end", fmt.Appendf(nil, `{"why":%q}`, why))
			return
		case <-tick.C:
		}
	}
}

// events writes server-sent events.
type events struct {
	w  http.ResponseWriter
	to *http.ResponseController
	n  int
}

func (e *events) send(kind string, data []byte) error {
	e.n++
	return e.write(fmt.Sprintf("id: %d\nevent: %s\ndata: %s\n\n", e.n, kind, data))
}

// done takes the deadline away: the connection may have another request.
func (e *events) done() { _ = e.to.SetWriteDeadline(time.Time{}) }

func (e *events) beat() error { return e.write(":\n\n") }

func (e *events) write(text string) error {
	_ = e.to.SetWriteDeadline(time.Now().Add(writing)) // a writer that cannot has no connection of its own
	if _, err := e.w.Write([]byte(text)); err != nil {
		return err
	}
	return e.to.Flush()
}
