package webhooks

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/idempotency"
)

// Schema is the effects table. Nothing in it keeps an event from being stored twice: that is what is to be shown.
const Schema = `CREATE TABLE IF NOT EXISTS events (id TEXT NOT NULL, event TEXT NOT NULL, owner TEXT NOT NULL, action TEXT NOT NULL)`

// SummaryOfKey is the metadata of a summary that names the event it is of.
const SummaryOfKey = "summary-of"

type payload struct {
	Action     string `json:"action"`
	Repository *struct {
		FullName string `json:"full_name"`
	} `json:"repository"`
	Organization struct {
		Login string `json:"login"`
	} `json:"organization"`
	Release *struct {
		TagName string `json:"tag_name"`
		Assets  []struct {
			Name string `json:"name"`
		} `json:"assets"`
	} `json:"release"`
}

// Handle stores an event under its repository and returns its summary. Before the fix it does not know events of
// organisations, and panics on a release without assets.
func (f *Faults) Handle(msg *message.Message) ([]*message.Message, error) {
	var event payload
	if err := json.Unmarshal(msg.Payload, &event); err != nil {
		return nil, fmt.Errorf("read event: %w", err)
	}
	owner, err := f.owner(event)
	if err != nil {
		return nil, err
	}
	if err := f.downstream(msg.UUID); err != nil {
		return nil, err
	}
	detail := event.Action
	if event.Release != nil {
		detail = f.release(event)
	}
	tx := idempotency.Tx(msg.Context())
	kind := msg.Metadata.Get(EventKey)
	insert := `INSERT INTO events (id, event, owner, action) VALUES (?, ?, ?, ?)`
	if f.Bind != nil {
		insert = f.Bind(insert)
	}
	if _, err := tx.Exec(insert, msg.UUID, kind, owner, detail); err != nil {
		return nil, fmt.Errorf("store event: %w", err)
	}
	return summary(msg.UUID, kind, owner, detail)
}

func (f *Faults) owner(event payload) (string, error) {
	switch {
	case event.Repository != nil:
		return event.Repository.FullName, nil
	case !f.Fixed.Load():
		return "", classify.Permanent(errors.New("the event has no repository"), classify.Reason("no_repository"))
	case event.Organization.Login != "":
		return event.Organization.Login, nil
	}
	return "github", nil
}

func (f *Faults) release(event payload) string {
	if f.Fixed.Load() && len(event.Release.Assets) == 0 {
		return event.Release.TagName
	}
	return event.Release.TagName + " " + event.Release.Assets[0].Name // the bug
}

func summary(id, kind, owner, detail string) ([]*message.Message, error) {
	body, err := json.Marshal(map[string]string{"event": kind, "owner": owner, "detail": detail})
	if err != nil {
		return nil, err
	}
	msg := message.NewMessage("", body) // the receiver derives its id
	msg.Metadata.Set(SummaryOfKey, id)
	return []*message.Message{msg}, nil
}

// Stored returns how many rows there are for each id.
func Stored(db *sql.DB) (map[string]int, error) {
	rows, err := db.Query(`SELECT id, count(*) FROM events GROUP BY id`)
	if err != nil {
		return nil, fmt.Errorf("count the stored events: %w", err)
	}
	defer rows.Close()
	counts := map[string]int{}
	for rows.Next() {
		var id string
		var n int
		if err := rows.Scan(&id, &n); err != nil {
			return nil, fmt.Errorf("count the stored events: %w", err)
		}
		counts[id] = n
	}
	return counts, rows.Err()
}
