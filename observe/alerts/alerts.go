package alerts

import _ "embed" // the rules

//go:embed spillway.rules.yml
var rules string

// Rules returns the rule file, spillway.rules.yml, as Prometheus loads it.
func Rules() []byte { return []byte(rules) }
