// Package jsonedit changes JSON documents by a merge patch (RFC 7396) or a JSON patch (RFC 6902). It works on the
// bytes: what a patch does not touch stays as it is, with its white space, its escapes, and numbers of any length. No
// number becomes a float.
package jsonedit
