package dashboard

import _ "embed" // the dashboard

//go:embed spillway.json
var dashboard string

// Grafana returns the dashboard, spillway.json, as Grafana imports it.
func Grafana() []byte { return []byte(dashboard) }
