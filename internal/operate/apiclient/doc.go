// Package apiclient is what those have in common who speak to a console over its API: where it is, and with what token.
package apiclient
