// Package topicname is what the other parts of Spillway ask of a naming.Scheme, and users do not.
package topicname

// Inside is a naming.Scheme as the other parts see it: its method Inside returns it. Source is naming.Source.
type Inside[Source any] interface {
	// IsDeadLetter reports whether topic has the name of a topic for dead letters, parked and quarantined ones
	// included.
	IsDeadLetter(topic string) bool
	// IsStage reports whether topic has the name of a topic where messages wait for a retry, or come back to.
	IsStage(topic string) bool
	// StagePrefix is what the names of all stage topics of a live topic begin with, if the name of topic is legal.
	StagePrefix(topic string) string
	// StageGroup names the consumer group that reads a stage topic. It differs for each handler, also if handlers share
	// the topic. With the default patterns it is the name of the topic.
	StageGroup(source Source) string
}
