// Package sequence_test is a model of the protocol of package sequence: lanes, parking, draining and settling, among
// rebalances, crashes, stopped processes, purges, redrives and deploys. It plays with the tables of package sequence.
package sequence_test

import (
	"math/rand/v2"
	"testing"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

const steps = 300

func play(s *tables, broken fault, seed uint64) (violated string) {
	w := newWorld(broken, s.empty(), rand.New(rand.NewPCG(seed, 0)).IntN)
	for range steps {
		w.step()
	}
	w.calm()
	return w.violated
}

// Whatever happens, the messages of a key take effect in the order of the source, none is lost, none takes effect
// twice, and none is stuck. Outputs appear in that order too. SPILLWAY_CHAOS makes the runs more.
func TestModel(t *testing.T) {
	s, random := newTables(t), testkit.Random(t)
	for range testkit.Campaign(t, 40) {
		seed := random.Uint64()
		violated := play(s, none, seed)
		testkit.Require(t, violated == "", "run %d: %s", seed, violated)
	}
}

// Each fault is found, so the model can fail. A run that is known to find it takes the place of hundreds.
func TestModelFindsFaults(t *testing.T) {
	s := newTables(t)
	for broken, seed := range map[fault]uint64{
		commitTooFar: 12, parkLater: 44, noTrace: 28, settleLater: 2076, mixedVersions: 2564, laneEndsEarly: 520,
		deleteWithEffect: 60, unfetchedDrain: 1, capInLane: 69, capOvertakes: 13, shortRetention: 55,
	} {
		for first := seed; play(s, broken, seed) == ""; seed++ {
			testkit.Require(t, seed < first+100, "%s: no run found a violation", broken)
		}
	}
}
