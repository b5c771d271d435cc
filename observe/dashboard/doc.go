// Package dashboard has the dashboard of Spillway for Grafana 10 and newer: the file spillway.json. Import it, and
// choose the data source:
//
//	Dashboards ▶ New ▶ Import ▶ spillway.json
//
// or let Grafana provision it from a folder. The panels stand on the series of package prom. Those with a dashed red
// line also need the rules of package alerts, which record the limits.
//
// The rows are what people ask in this order: does it work, what fails and why, what is retried later, what waits in
// the order of its key, what took effect, what is held, what came back, and can all of this be believed.
//
// The variables choose the data source, the services (label job), their topics and their handlers. Numbers that come
// from the database are the same on every instance: the panels take their maximum. Numbers of processes are added up.
//
// Grafana returns the file, for programs that provision one.
package dashboard
