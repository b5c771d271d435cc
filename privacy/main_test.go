package privacy_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/watermill-spillway/spillway/privacy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// standard is the Redactor of a part without one.
var standard *privacy.Redactor
