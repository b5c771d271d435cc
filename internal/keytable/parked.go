package keytable

import "github.com/watermill-spillway/spillway/internal/database/schema"

// Parked is the table of package sequence. A purge of keys knows it: the keys of parked messages stay.
var Parked = schema.Table{Component: "parked", Name: "spillway_parked", Key: []string{"seq"},
	Versions: []schema.Version{{
		File: "0028_parked.sql",
		Columns: []string{"seq", "service", "members", "topic", "part", "source", "lane", "position", "fingerprint",
			"redrives", "due_at", "held", "sent_at", "consumer", "key_id", "record_key", "id", "metadata", "payload",
			"bytes", "decision", "decided_at", "decided_by", "decided_why"},
	}}}
