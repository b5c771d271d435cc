// Command api closes an incident over HTTP alone, on an embedded pub/sub and SQLite.
//
// A service stores orders. Some fail, for four causes. A program has an address and a token, and nothing else of the
// service: package operator imports no part of Spillway. It tries a canary too early, waits for the fix, has a second
// person approve, redrives, edits and discards, and reads the record. Then the command redrive closes the same incident
// over the API. In the end each message is counted by its id.
//
//	main.go       flags, and how the program ends
//	service.go    the service, with the console and its API below /deadletters/
//	orders.go     the messages, and why they fail
//	command.go    the command, with an address and a token
//	generated.go  a client that a tool makes of openapi.json, with the flag -client: generated.txt uses it
//	judge.go      what is counted
//	operator      the program on call
package main
