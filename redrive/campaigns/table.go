package campaigns

import "github.com/watermill-spillway/spillway/internal/sqlstore/database/schema"

// tables are the campaigns, their letters, what was done with them, and the standing policies.
var tables = []schema.Table{
	{
		Component: "campaigns", Name: "spillway_campaigns", Key: []string{"id"},
		Versions: []schema.Version{{File: "0005_campaigns.sql", Columns: []string{
			"id", "service", "policy", "cause", "state", "version", "request", "created_at", "resume_to", "why", "approved_by", "left_out",
			"not_before", "started_at", "ended_at", "resume_at", "pauses", "rate", "claims", "next_due", "late", "canary",
			"canary_at", "leased_until", "select_after", "max_seq", "selected", "redriven", "quarantined", "refused", "failed", "gone",
			"succeeded", "failed_again", "heard_before", "failed_before", "redriven_before", "swept",
		}}},
	},
	{
		Component: "campaign_letters", Name: "spillway_campaign_letters", Key: []string{"campaign", "seq"},
		Versions: []schema.Version{{File: "0005_campaigns.sql", Columns: []string{
			"campaign", "seq", "claim", "first_failed_at", "size", "state", "token", "leased_until", "tries",
			"done_at", "why",
		}}},
	},
	{
		Component: "campaign_events", Name: "spillway_campaign_events", Key: []string{"seq"},
		Versions: []schema.Version{{File: "0005_campaigns.sql", Columns: []string{
			"seq", "campaign", "occurred_at", "what", "actor", "reason", "details",
		}}},
	},
	{
		Component: "policies", Name: "spillway_policies", Key: []string{"service", "name", "cause"},
		Versions: []schema.Version{{File: "0005_campaigns.sql", Columns: []string{
			"service", "name", "cause", "version", "rule", "seen_at", "stopped", "changed_at", "changed_by", "changed_why",
		}}},
	},
}
