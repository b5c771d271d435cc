// Package jsonedit changes JSON documents by a merge patch (RFC 7396) or a JSON patch (RFC 6902). It works on the
// bytes: what a patch does not touch stays as it is, with its white space, its escapes, and numbers of any length. No
// number becomes a float.
//
// evanphx/json-patch decodes and encodes the document anew, and tidwall/sjson has neither RFC, only paths of its own:
// with either, what promise V6 keeps is lost, or this package stays around it.
package jsonedit
