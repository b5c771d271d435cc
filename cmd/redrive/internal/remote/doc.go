// Package remote is the desk of the command redrive over the API of a console, instead of a database.
package remote
