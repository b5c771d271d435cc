// Package few keeps the values of a label few and short: a value may come from an attacker, and each new one is a
// series.
//
// Text makes a value that can be read in a line. Values knows those that each label has, and folds those that are too
// many into Other.
package few
