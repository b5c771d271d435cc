// Package sequence_test is a model of the protocol of package sequence: lanes, parking, draining and settling, among
// rebalances, crashes, stopped processes, purges, redrives and deploys. It plays with a store in memory, which has
// faults too, and with the tables of package sequence.
package sequence_test

import (
	"math/rand/v2"
	"testing"

	"github.com/watermill-spillway/spillway/internal/testkit"
)

const steps = 300

func play(s store, broken fault, seed uint64) (violated string) {
	w := newWorld(broken, s, rand.New(rand.NewPCG(seed, 0)).IntN)
	for range steps {
		w.step()
	}
	w.calm()
	return w.violated
}

// holds plays so many runs, which must have no violation.
func holds(t *testing.T, runs int, empty func() store) {
	random := testkit.Random(t)
	for range testkit.Campaign(t, runs) {
		seed := random.Uint64()
		violated := play(empty(), none, seed)
		testkit.Require(t, violated == "", "run %d: %s", seed, violated)
	}
}

// finds fails unless one of so many runs from a seed on finds a fault.
func finds(t *testing.T, broken fault, seed, runs uint64, empty func() store) {
	t.Run(string(broken), func(t *testing.T) {
		for first := seed; play(empty(), broken, seed) == ""; seed++ {
			testkit.Require(t, seed < first+runs, "%d runs found no violation", runs)
		}
		t.Logf("run %d", seed)
	})
}

// Whatever happens, the messages of a key take effect in the order of the source, none is lost, none takes effect
// twice, and none is stuck. Outputs appear in that order too. SPILLWAY_CHAOS makes the runs more.
func TestModel(t *testing.T) {
	holds(t, 2000, func() store { return newMemory(none) })
}

// Each fault is found, so the model can fail.
func TestModelFindsFaults(t *testing.T) {
	for broken, seed := range map[fault]uint64{ // a run that is known to find it takes the place of hundreds
		commitTooFar: 12, laneEndsEarly: 299, parkLater: 45, deleteWithEffect: 38, noTrace: 22, settleLater: 731,
		loadBeforeFetch: 13335, counted: 0, redriveFreesKey: 56, shortRetention: 268, purgeParked: 38, trustHeld: 47,
		deleteHead: 16, mixedVersions: 498, settleForgets: 1235, unfetchedDrain: 1, decideHead: 50, deleteDecided: 716,
		holdDecided: 14, capInLane: 13, capOvertakes: 13,
	} {
		finds(t, broken, seed, 20_000, func() store { return newMemory(broken) })
	}
}
