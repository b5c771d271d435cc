package privacy

import (
	"testing"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

// Feature D14: no prefix of a secret is left out. TestCorpusOfDrivers has what is found by them.
func TestPrefixesFitAWord(t *testing.T) {
	testkit.Require(t, len(prefixes) <= maxPrefixes, "%d prefixes, and a word has %d bits", len(prefixes), maxPrefixes)
}
