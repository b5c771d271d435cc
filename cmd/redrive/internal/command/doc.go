// Package command is the command line redrive: each command is a file, and does one thing through package letters or
// package campaigns. What it prints goes through package screen, and what it opens through package connect.
//
//	main ▶ command ▶ screen     the terminal, the pipe, JSON
//	               ▶ connect    database and brokers by URL
//	               ▶ archive    letters as JSON lines
//
// # Adding a command
//
// Write a file with a function that returns the *cobra.Command, and add it to its group in root.go. A command asks
// a.store for the dead letters and a.screen for its output. It prints the same facts three times: for people, for a
// pipe, and as JSON. It returns an error made by failed, wrong, none or partly, which says the exit code. Its help has
// examples.
package command
