package testkit

import "testing"

// InBubble lets rapid run inside of synctest.Test, where asking for the test's deadline panics.
type InBubble struct{ testing.TB }
