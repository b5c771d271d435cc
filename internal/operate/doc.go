// Package operate is what a person on call does with dead letters, whatever face it has: the pages of redrive/console,
// the command redrive, and a program. A face reads a request, calls this package with the request and the person, and
// shows the data that come back. Nothing here knows HTTP, HTML or a terminal.
//
// So all faces have the same rights, ask for the same reasons, write the same record, and read the same words.
package operate
