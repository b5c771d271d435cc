// Package keytable is the table in which idempotent receivers keep what was applied. It is the same for both owners of
// a transaction, the receiver's own store or a subscriber whose transaction it joins, so that a message which comes one
// way is recognised when it comes the other.
package keytable

import "github.com/watermill-spillway/spillway/internal/sqlstore/database/schema"

// Table is the table of keys.
var Table = schema.Table{
	Component: "keys", Name: "spillway_keys", Key: []string{"consumer", "id"},
	Versions: []schema.Version{
		{File: "0002_keys.sql", Columns: []string{"consumer", "id", "outputs", "applied_at", "fingerprint", "version",
			"fence", "expires_at", "nonce", "settled_source", "settled_position", "settled_redrives"}},
	},
}

// Parked is the table of package sequence. A purge of keys knows it: the keys of parked messages stay.
var Parked = schema.Table{Component: "parked", Name: "spillway_parked", Key: []string{"seq"},
	Versions: []schema.Version{{
		File: "0003_parked.sql",
		Columns: []string{"seq", "service", "members", "topic", "part", "source", "lane", "position", "fingerprint",
			"redrives", "due_at", "held", "sent_at", "consumer", "key_id", "record_key", "id", "metadata", "payload",
			"bytes", "decision", "decided_at", "decided_by", "decided_why"},
	}}}
