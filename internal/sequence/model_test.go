// Package sequence_test is a model of the protocol of package sequence: lanes, parking, draining and settling, among
// rebalances, crashes, stopped processes, purges, redrives and deploys. It plays with a store in memory, which has faults too, and with the tables
// of package sequence.
package sequence_test

import (
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/watermill-spillway/spillway/internal/testkit"
)

const steps = 300

func play(broken fault, choose chooser) (violated string) {
	return playOn(newMemory(broken), broken, choose)
}

func playOn(s store, broken fault, choose chooser) (violated string) {
	w := newWorld(broken, s, choose)
	for range steps {
		w.step()
	}
	w.calm()
	return w.violated
}

// Whatever happens, the messages of a key take effect in the order of the source, none is lost, none takes effect
// twice, and none is stuck. Outputs appear in that order too.
func TestModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		choose := func(n int) int { return rapid.IntRange(0, n-1).Draw(rt, "") }
		if violated := play(none, choose); violated != "" {
			rt.Fatal(violated)
		}
	})
}

func seeded(seed uint64) chooser { return rand.New(rand.NewPCG(seed, 0)).IntN }

// Each fault is found, so the model can fail.
func TestModelFindsFaults(t *testing.T) {
	const most = 20_000
	for broken, first := range map[fault]uint64{ // a run that is known to find it takes the place of hundreds
		commitTooFar: 12, laneEndsEarly: 299, parkLater: 45, deleteWithEffect: 38, noTrace: 22, settleLater: 731,
		loadBeforeFetch: 13335, counted: 0, redriveFreesKey: 56, shortRetention: 268, purgeParked: 38, trustHeld: 47,
		deleteHead: 16, mixedVersions: 498, settleForgets: 1235, unfetchedDrain: 1, decideHead: 50, deleteDecided: 716,
		holdDecided: 14, capInLane: 13, capOvertakes: 13,
	} {
		t.Run(string(broken), func(t *testing.T) {
			for n := range uint64(most) {
				seed := (first + n) % most
				if violated := play(broken, seeded(seed)); violated != "" {
					t.Logf("run %d: %s", seed, violated)
					return
				}
			}
			t.Errorf("%d runs found no violation", most)
		})
	}
}

// Runs that are the same each time. SPILLWAY_CHAOS makes them more.
func TestModelManyRuns(t *testing.T) {
	for seed := range uint64(testkit.Campaign(t, 300)) {
		if violated := play(none, seeded(seed)); violated != "" {
			t.Fatalf("seed %d: %s", seed, violated)
		}
	}
}
