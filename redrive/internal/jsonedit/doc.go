// Package jsonedit changes JSON documents by a merge patch (RFC 7396) or a JSON patch (RFC 6902), with
// github.com/evanphx/json-patch. What a patch does not touch keeps its value, and no number becomes a float. White space
// goes, and a merge writes <, > and & as escapes. What the library would read at will, such as a key that is there
// twice, is refused before.
package jsonedit
