// Package webhook sends notices as HTTP requests.
//
//	sink, err := webhook.New(webhook.Config{URL: os.Getenv("ALERTS_URL"), Secret: secret})
//	...
//	notifier, err := notify.New(notify.Config{Sinks: []notify.Sink{sink}})
//
// # The request
//
// A request is a POST with the notice as JSON, or with the body that Slack and what is compatible with Slack take: set
// Config.Body to Slack. docs/notices.md describes both.
//
// With a Secret each request is signed, in the headers of the Standard Webhooks specification: an id, the time, and an
// HMAC-SHA256 of both and the body. A receiver checks them with Verify, which refuses what is older than some minutes,
// or with a library of that specification.
//
// # Answers
//
// An answer of 2xx is success. After 408, 425, 429 and 5xx, and without an answer, the Notifier tries again, not before
// what Retry-After says. Any other answer gives the notice up: it would be the same next time. A redirect is followed
// within the host, if it keeps the method (307 and 308). Of the body of an answer at most 4 KiB are read.
//
// # Secrets
//
// The URL of a webhook is a secret: who knows it can write to the chat. Errors have neither the URL nor a part of it.
package webhook
