// Package screen is the one way out of the command redrive: whatever it prints goes through here.
//
// The values that a dead letter carries were chosen by strangers. A terminal obeys control characters, and a
// spreadsheet runs formulas. So no value reaches either of them raw:
//
//	Text     one line: control characters, escapes, bidirectional overrides and bytes that are no text become \x1b, \u202e, \xff
//	Block    the same for several lines; it keeps line ends and tabs
//	JSON     a line of JSON: the same characters as \u escapes, so that a program reads back what was there
//	CSV      a line of comma-separated values, where no cell begins as a formula does
//
// # Terminal and pipe
//
// On a terminal a Table has a header, and columns that fit the width: long ones are cut with an ellipsis, and the least
// important ones go first. In a pipe it is a line for each row, with tabs between the cells, without a header and
// uncut. With JSON set, commands print objects instead, one a line.
//
// Colour is for terminals only, and never carries a meaning that words do not. NO_COLOR and TERM=dumb turn it off.
package screen
