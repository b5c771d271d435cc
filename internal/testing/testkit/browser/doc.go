// Package browser drives a real browser in tests of web pages: Debian's Chromium, headless.
//
// Start runs a browser for a test, and Browser.Page opens a tab in a profile of its own, with or without script, in the
// light or the dark scheme, at a width. A Page goes where its test sends it, by mouse or by keyboard:
//
//	page := browser.Start(t).Page(t, browser.Options{Width: 1280})
//	page.Open(server.URL)
//	page.Follow("a[href='/causes']") // a click, until the next page has loaded
//	page.Text("h1")
//
// A page that deceives or disturbs its reader is a failure that no assertion looks for. So each Page listens from its
// first moment: Page.Trouble returns the dialogs that opened, the errors of scripts and of the content security policy,
// and the requests to other hosts. Page.Axe returns what axe-core finds wrong for people with a keyboard or a screen
// reader.
//
// Without a browser a test is skipped, and in CI it fails: internal/testing/services says how the browser is installed.
package browser
