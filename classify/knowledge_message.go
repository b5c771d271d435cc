package classify

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"time"

	"github.com/watermill-spillway/spillway/internal/foreign"
)

var (
	unreadable  = Verdict{Class: ClassInvalid, Reason: ReasonUnmarshal}
	unknownType = Verdict{Class: ClassInvalid}
)

// askMessage judges what marshalers and Watermill's components say of a message that they cannot read, or do not know,
// without importing one. Some of them have no type and no sentinel. Then the text decides, and a test with the real
// component compares it.
func askMessage(err error) (Verdict, bool) {
	switch err.(type) {
	case *json.SyntaxError, *json.UnmarshalTypeError:
		return unreadable, true
	case base64.CorruptInputError, *time.ParseError: // of fields that JSON holds as texts
		return unreadable, true
	case interface{ RequiredNotSet() bool }, interface{ InvalidUTF8() bool }: // of gogo, and of golang/protobuf
		return unreadable, true
	}
	switch foreign.ErrorOf(err).Kind {
	case foreign.Unreadable:
		return unreadable, true
	case foreign.Traced: // of a forwarder's envelope
		return unreadable, err.Error() == "unknown destination topic"
	case foreign.Plain:
		return askMessageText(err.Error())
	}
	return Verdict{}, false
}

// askMessageText judges an error that has nothing but its text.
func askMessageText(text string) (Verdict, bool) {
	if rest, ok := strings.CutPrefix(text, "received unexpected event type "); ok { // cqrs.EventProcessor
		return unknownType, strings.Contains(rest, ", expected ")
	}
	if strings.HasPrefix(text, "no handler found for event ") { // cqrs.EventGroupProcessor
		return unknownType, true
	}
	if strings.HasPrefix(text, "github.com/gogo/protobuf/proto panic") { // ProtobufMarshaler
		return unreadable, true
	}
	rest, ok := strings.CutPrefix(text, "proto: ")
	if !ok {
		return Verdict{}, false
	}
	for _, start := range gogoStarts {
		if strings.HasPrefix(rest, start) {
			return unreadable, true
		}
	}
	if _, said, ok := strings.Cut(rest, ": "); ok { // behind the name of a type
		return unreadable, strings.HasPrefix(said, "illegal tag ") || strings.HasPrefix(said, "wiretype end group ")
	}
	return Verdict{}, false
}

// gogoStarts are the beginnings of what gogo, and golang/protobuf before 1.4, say of bytes that they cannot read.
var gogoStarts = []string{
	"illegal wireType ", "wrong wireType = ", "negative length found during unmarshaling", "integer overflow",
	"unexpected end of group", "bad wiretype for map field", "can't skip unknown wire type ",
	"internal error: bad wiretype",
}
