// Package api is the JSON API of redrive/console: what its pages do, for programs. It stands on package operate, as the
// pages do, so both have the same rights, masks, reasons and record.
//
// # How a route is added
//
//  1. A method of Handler in the file of its noun, such as letters.go. It takes the request and returns an answer. An
//     error goes to the caller: problemOf makes problem details of it.
//  2. A row in the table of routes.go, with the right, the fields of its query, its body and what it answers. TestRights
//     wants a row too.
//  3. go test ./internal/operate/api -run TestDocument -update writes openapi.json, which says the same to programs.
//
// Within v1 a route, a field and a value stay. New ones may come: see docs/api.md.
package api
