// Command console is an incident for a person with a browser, on an embedded pub/sub and SQLite.
//
// A service stores GitHub's webhooks, and goes on to receive them. Some fail, for three causes. The service has a web
// page, where the fix is deployed with a button, and the console below /deadletters/: two lines of its server. There
// the person sees what failed, redrives it once the fix is deployed, and discards what is of no use.
//
//	main.go      flags, and how the program ends
//	service.go   the service: its handler, its dead letters, its worker of campaigns
//	pages.go     its web server, with the console
//	traffic.go   the webhooks that arrive
package main
