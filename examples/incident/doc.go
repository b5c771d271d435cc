// Command incident is a night on call, from the alert to the closed incident, with the command redrive.
//
// A service stores GitHub's webhooks. One in eight fails, for four causes. The program then plays the person on call:
// it runs the built command on a terminal, and prints what that person types and sees.
//
//	a bug in the handler, seen twice     redrive with a canary, which fails and stops the campaign; again after the fix
//	a sender's typo                      edited on the way
//	payloads that were cut               discarded
//
// The service is a process of its own. It is killed in the middle of the campaign, and started again. At the end every
// message is counted by its id: in effects, among the discarded ones, and on record.
//
// With -practice the incident is yours: the program says what to export in another terminal, and counts when you are
// done.
//
//	session.go   what is typed
//	practice.go  the same incident, for you
//	service.go   the service, which works on campaigns too
//	input.go     the messages, and why they fail
//	terminal.go  how the command is run
//	judge.go     what is counted
package main
