package wmsql_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/poison"
)

// outputs counts what was published to the topic of outputs, by the id of its source.
func (b *bench) outputs() map[string]int {
	b.Helper()
	counts := map[string]int{}
	b.each(b.outs, func(msg *message.Message) { counts[string(msg.Payload)]++ })
	return counts
}

// letters returns the dead letters, by id.
func (b *bench) letters() map[string][]poison.Letter {
	b.Helper()
	letters := map[string][]poison.Letter{}
	b.each(b.topic+".dlq", func(msg *message.Message) {
		letter, err := poison.Decode(msg)
		if err != nil {
			b.Fatal(err)
		}
		letters[letter.Original.UUID] = append(letters[letter.Original.UUID], letter)
	})
	return letters
}

// each reads a table beside the code under test.
func (b *bench) each(topic string, do func(*message.Message)) {
	b.Helper()
	rows, err := b.db.Query(`SELECT uuid, payload, metadata FROM ` + b.table(topic) + b.sql(` ORDER BY "offset"`, " ORDER BY `offset`"))
	if err != nil && (strings.Contains(err.Error(), "42P01") || strings.Contains(err.Error(), "1146")) {
		return // the table is not there yet
	}
	if err != nil {
		b.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var id string
		var payload, metadata []byte
		if err := rows.Scan(&id, &payload, &metadata); err != nil {
			b.Fatal(err)
		}
		msg := message.NewMessage(id, payload)
		if err := json.Unmarshal(metadata, &msg.Metadata); err != nil {
			b.Fatal(err)
		}
		do(msg)
	}
	if err := rows.Err(); err != nil {
		b.Fatal(err)
	}
}

// drained waits until nothing is left to consume, as long as it gets less.
func (b *bench) drained() {
	b.Helper()
	for left := b.backlog(b.topic, ""); left > 0; {
		b.until(fmt.Sprintf("fewer than %d are left", left), func() bool { return b.backlog(b.topic, "") < left })
		left = b.backlog(b.topic, "")
	}
}

// account waits for the end and counts by id: each message has both of its effects and its output once, or, where it is
// set aside, one letter and nothing else. Nothing else is there.
func (b *bench) account(published []string, aside ...string) {
	b.Helper()
	b.drained()
	effects, outputs, letters := b.effects(), b.outputs(), b.letters()
	for _, id := range published {
		steps := strings.Join(slices.Sorted(slices.Values(effects[id])), " ")
		found := fmt.Sprintf("effects %q, %d outputs, %d letters", steps, outputs[id], len(letters[id]))
		want := `effects "one two", 1 outputs, 0 letters`
		if slices.Contains(aside, id) {
			want = `effects "", 0 outputs, 1 letters`
		}
		if found != want {
			b.Errorf("%s: %s, want %s", id, found, want)
		}
		delete(effects, id)
		delete(outputs, id)
		delete(letters, id)
	}
	if len(effects)+len(outputs)+len(letters) > 0 {
		b.Errorf("of messages that nobody published: effects %v, outputs %v, letters %v", effects, outputs, letters)
	}
}
