// Package remote is the desk of the command redrive over the API of a console, instead of a database. The server says
// who the person is and what the person may do, masks, and opens what is sealed.
//
// Nothing that a server sends is believed: answers are bounded, and their texts are made safe where they are printed.
package remote
