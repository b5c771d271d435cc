// Package console shows the dead letters of a service in a browser, mounted in the service's own HTTP server:
//
//	c, err := console.New(console.Config{Campaigns: all, Access: who})
//	mux.Handle("/deadletters/", http.StripPrefix("/deadletters", c))
//
// It does what the command redrive does: it says what failed, since when and why, and redrives what is repaired, on
// record. It stands on campaigns.Campaigns and letters.Store, and has no SQL of its own. docs/console.md says how to
// mount it.
//
// # Access
//
// Config.Access returns the Person of each request: a name for the record, and a Role. Each route names the least Role
// that it needs, in the table of routes.go. There is no Console without it: where a connection begins proves no person.
// Loopback is for one's own machine.
//
// # Programs
//
// Below api/v1/ the handler answers programs with JSON, as docs/api.md says: with the same access, roles, masks and
// record.
//
// # What a browser may do
//
// GET changes nothing. A POST of another site is refused. Pages have no inline script and no inline style, load nothing
// from elsewhere, stand in no frame, and stay in no cache. All that came with a message is masked, bounded, and shown
// without characters that a browser obeys. Everything works without script; the script shows times in the viewer's
// zone, and keeps the moving part of a page fresh.
//
// A page is written into memory first, so that it is there as a whole or not at all. If the database is unavailable,
// the page says so with status 503, and tries again.
//
// # How a page is added
//
//  1. A file named after the page, such as causes.go, with a method of Console that takes the request and returns an answer. The
//     method asks the store with the request's context, and fills a struct of its own: the view. Addresses come from request.link.
//     An error goes to the caller: explain makes a page of it. badInput, notFound and fault say more.
//  2. A template of the same name, templates/causes.html, which defines content, and perhaps live: the part that moves. In it v
//     shows a value of a message, lines shows several lines, n a number, bytes a size, when a time, say a text with
//     numbers. A cell of a table
//     has a data-label, so that narrow screens can show the row as a card.
//  3. A row in the table of routes.go, with the right. TestRights wants a row too.
//
// Words stand where they are shown: in the template, or beside the code that decides.
//
// A form is sent by POST to a route with a row of its own, which answers with answer.to: the address of a page that
// says what was done. A form that is refused is answered with its page, a status, and what was typed.
package console
