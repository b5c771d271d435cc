// Package stagegroup consumes the stage topics of a service as one member of one consumer group of sarama's, over one
// client. Waiting records stay records, until they are near the head of their partition and due:
//
//	group   (group.go)    is a member for as long as there are topics, and joins anew when they change
//	session (session.go)  is one generation of the group: it lets handlers finish, and knows whether it is still a member
//	part    (part.go)     is a partition: it hands over what is due, one goroutine for each message that is handled
//	offsets (offsets.go)  takes over topics, commits
//
// # Offsets
//
// Each topic's offsets are kept in a group of the topic's own, as if a subscriber consumed the topic alone in that
// group. So the tools that look at those groups see the truth, a service can change between both ways, and another name
// of the service's group repeats nothing, although stage topics keep all that they ever had. The group of the members
// only distributes partitions. Its members take over a topic when the topic's own group has no members: while an
// instance of the other way lives, the topic is that one's. If one comes later, the broker refuses our commits, and the
// topic is left to it.
//
// Such commits name no generation. A member that was expelled can commit an offset that is too low, so that messages
// are handled again. It commits no offset with an unacked message before it, so none is lost. All offsets are committed
// each minute and at the end of a session, so that such an offset does not stay. A member hands nothing over, and
// commits nothing, unless the group's coordinator knew it a short time ago: a process, or its connections, can stand
// still.
package stagegroup
