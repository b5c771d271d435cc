package delayed

import "github.com/watermill-spillway/spillway/internal/database/schema"

var table = schema.Table{Component: "delayed", Name: "spillway_delayed", Key: []string{"seq"},
	Versions: []schema.Version{{
		File: "0006_delayed.sql",
		Columns: []string{"seq", "service", "topic", "id", "metadata", "payload", "size", "due_at", "ready_at", "token",
			"failures"},
	}}}
