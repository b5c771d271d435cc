// Package stagegroup consumes the stage topics of a service as one member of one consumer group, over one client.
//
// A consumer group of sarama's costs a client with two connections, and six goroutines for each partition. A service
// with ten handlers of three stages would have 60 connections and some 800 goroutines, nearly all of which wait. Here
// all topics have one member. Waiting records stay records, until they are near the head of their partition and due:
//
//	membership (session.go)   joins, and learns the partitions that are this member's (assignment.go)
//	keeper     (offsets.go)   takes over topics, commits
//	fetcher    (fetch.go)     one for each broker that leads a partition: one short request for all of its partitions
//	scheduler  (schedule.go)  hands over what is due: one goroutine for each message that is being handled
//
// # Offsets
//
// Each topic's offsets are kept in a group of the topic's own, as if a subscriber consumed the topic alone in that
// group. So the tools that look at those groups see the truth, and a service can change between both ways, with its
// messages where they are. The group of the members only distributes partitions. Its members take over a topic when the
// topic's own group has no members: while an instance of the other way lives, the topic is that one's. If one comes
// later, the broker refuses our commits, and the topic is left to it.
//
// Such commits name no generation. A member that was expelled can commit an offset that is too low, so that messages
// are handled again. It commits no offset with an unacked message before it, so none is lost. All offsets are committed
// each minute and at the end of a session, so that such an offset does not stay. Before the last commit, and after a
// pause of the process or of its connections, a member asks whether it is still one.
//
// # Partitions
//
// The leader assigns partitions in the members' user data, and assigns none in sarama's sense: sarama would start six
// goroutines for each. Each member asks the coordinator for its user data.
package stagegroup
