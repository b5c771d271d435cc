// Package contexts keeps the contexts of the command redrive: names for the places where a person works. A context has
// addresses and paths of files, and no secret.
package contexts
