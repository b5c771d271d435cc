package testkit

import "pgregory.net/rapid"

// InBubble lets rapid run inside of synctest.Test, where asking for the test's deadline panics.
type InBubble struct{ rapid.TB }
