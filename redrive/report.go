package redrive

// Report says what a drain did until it ended, also if it ended with an error.
type Report struct {
	// ID is the x-redrive-id of every letter that was redriven.
	ID string
	// Taken counts the letters that were worked on, whatever became of them. A Refused letter of a Store is not among
	// them.
	Taken int
	// Redriven counts the letters that were published to their topic.
	Redriven int
	// Quarantined counts the letters that failed again after MaxRedrives redrives.
	Quarantined int
	// Refused counts the letters whose topic is not in Allow. Letters of a Store are counted when Drain starts; they
	// stay as they are and wait for a drain that allows their topic. Letters of a topic are parked.
	Refused int
	// RefusedTopics are the Refused letters of a Store by their topics: the 20 topics with the most letters. The topic
	// of letters that have none is empty.
	RefusedTopics map[string]int
	// Sealed counts the sealed letters that did not open, which Refused does not count. Letters of a Store stay as they
	// are; letters of a topic are parked. SealError is the error of the first, which names its key.
	Sealed    int
	SealError error
	// Parked counts the messages of a topic that were not chosen, or that were no letters. Drain parks nothing.
	Parked int
	// Failed counts the letters that the publisher refused. Letters of a Store wait again; letters of a topic are
	// parked.
	Failed int
	// LeasesLost counts the letters of a Store that another caller took over, or that arrived again, while the drain
	// worked on them. If they were published before, they will be published once more.
	LeasesLost int
}

// refusedTopic counts refused letters of a topic, if it has a place.
func (r *Report) refusedTopic(topic string, letters int) {
	if _, has := r.RefusedTopics[topic]; !has && len(r.RefusedTopics) == maxRefusedTopics {
		return
	}
	if r.RefusedTopics == nil {
		r.RefusedTopics = make(map[string]int)
	}
	r.RefusedTopics[topic] += letters
}
