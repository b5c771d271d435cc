package inside

import "context"

// Campaigns is the inside of campaigns.Campaigns. Store is *letters.Store, and State is campaigns.State.
type Campaigns[Store any, State comparable] interface {
	// Store returns the Store of campaigns.New.
	Store() Store
	// Summary counts the campaigns of the service by their states. It is made for metrics.
	Summary(ctx context.Context) (Summary[State], error)
	// Holding returns those of the letters, at most campaigns.MaxSeqs, that a campaign of the service has and is not
	// through with, each with the id of the campaign. Other campaigns do not take them. A campaign that was cancelled has a
	// letter until its worker gives it back.
	Holding(ctx context.Context, seqs ...int64) (map[int64]string, error)
	// LeftBehind says why a campaign left letters behind that it had selected: those that were refused, failed or are gone,
	// by reason, the most first, at most 20 reasons.
	LeftBehind(ctx context.Context, id string) ([]Behind, error)
	// Forget takes a person's values from what the campaigns keep: from the requests of campaigns (IDs, metadata,
	// description and payload of their filters, their edits and reasons) and from reasons and details of their events. The
	// word erased takes their place. A value of fewer than 4 bytes is replaced only if it is all of a text. What the
	// campaigns did, and their counts, stay. With a dry run nothing is changed.
	Forget(ctx context.Context, dryRun bool, values ...string) (Forgotten, error)
	// ForgetLetters takes the texts that the campaigns keep of letters: why a letter was refused, which can quote its
	// payload. It takes at most 500 letters, and returns how many texts there were.
	ForgetLetters(ctx context.Context, seqs ...int64) (int, error)
}

// Summary counts the campaigns of a service.
type Summary[State comparable] struct {
	// States has the number of campaigns in each state.
	States map[State]int `json:"states"`
	// Stopped is the number of paused campaigns that stopped themselves, because too many letters failed again, and wait
	// for Resume.
	Stopped int `json:"stopped"`
}

// Behind are letters that a campaign did not redrive, for one reason.
type Behind struct {
	// Outcome is refused, failed or gone, as the counts of the campaign are named.
	Outcome string `json:"outcome"`
	// Why says why, such as the topic that is not allowed. It is empty if that is not on record, or was purged.
	Why     string `json:"why,omitempty"`
	Letters int    `json:"letters"`
}

// Forgotten is what Forget did, or would do.
type Forgotten struct {
	// Texts is the number of campaigns and events of campaigns that said something.
	Texts int
	// Open are the ids of campaigns that go on saying it: they are still selecting, or have it in an edit and have not
	// ended. Cancel them, or wait for their end, and call Forget again.
	Open []string
}
