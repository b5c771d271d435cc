// Package frames folds a stack, so that a person sees first the frames of the application, which the cause is in.
//
// A dead letter has a stack as Go prints it: two lines a frame, innermost first. Of a hundred frames most are those of
// the Go runtime, of the standard library and of modules. They are folded into groups between the application's own.
package frames
