package classify

import (
	"errors"
	"fmt"
	"time"
)

// Class says what can be done about an error. The zero value is ClassUnknown.
type Class uint8

const (
	// ClassUnknown is the class of an error that no mark, rule or knowledge covers. It is retried like a transient one.
	ClassUnknown Class = iota
	// ClassTransient passes with time: a downstream is down, a lock is held. A retry may succeed.
	ClassTransient
	// ClassPermanent does not pass with time: a bug, a violated constraint, a panic. A retry would fail too.
	ClassPermanent
	// ClassInvalid means that the message itself is unacceptable: malformed, or without what it must have.
	ClassInvalid
	// ClassDiscard means that the message may be dropped: it is acked and counted, and placed nowhere.
	ClassDiscard
	// ClassAborted means that the message's own context ended: a shutdown, a rebalance, a lost session. The message is
	// nacked and nothing is counted. The context of the message decides it, never an error.
	ClassAborted
)

var classNames = [...]string{"unknown", "transient", "permanent", "invalid", "discard", "aborted"}

// String returns the lower-case name that stands in metadata and logs.
func (c Class) String() string {
	if int(c) < len(classNames) {
		return classNames[c]
	}
	return classNames[ClassUnknown]
}

// severity orders classes where joined errors disagree: the one that most needs a person wins. Discard comes last,
// so that a failure joined to it is never dropped; knowledge of a transient cause outweighs no knowledge.
func (c Class) severity() int {
	return [...]int{ClassDiscard: 0, ClassUnknown: 1, ClassTransient: 2, ClassPermanent: 3, ClassInvalid: 4}[c]
}

// Reasons that Spillway sets. Applications set their own with Reason.
const (
	ReasonTransientMaxRetries = "transient_max_retries"
	ReasonUnknownMaxRetries   = "unknown_max_retries"
	ReasonPermanent           = "permanent_error"
	ReasonInvalid             = "invalid_message"
	ReasonPanic               = "panic"
	ReasonGoexit              = "goexit"
	ReasonUnmarshal           = "unmarshal_error"
	ReasonExpired             = "ttl_expired"
	ReasonMaxDeliveries       = "max_delivery_count_exceeded"
	ReasonMaxHops             = "max_hop_count_exceeded"
	ReasonKeyReused           = "key_reused"
	ReasonMissingMetadata     = "missing_metadata"
	ReasonOutput              = "output_undeliverable"
	ReasonMaxRedrives         = "max_redrives_exceeded"
	ReasonSkipped             = "skipped"
)

// Verdict is what is known about an error. A zero field means "unknown".
type Verdict struct {
	// Class says what can be done.
	Class Class
	// Reason is a short code for programs, lower case with underscores.
	Reason string
	// Description is a sentence for people. Default: the text of the error.
	Description string
	// RetryAfter is the least time to wait before the next attempt.
	RetryAfter time.Duration
	// NotNow says that nothing failed: the message comes again later and is not counted. It needs ClassTransient, which
	// counts if the condition lasts too long. See the function NotNow.
	NotNow bool
	// Away says that the error is not about the message: something that the handler needs is away, and other messages
	// would fail too. It needs ClassTransient, which a verdict with Away alone gets. See the function Away.
	Away bool
	// TooLarge says that a publisher refused the message for its size. It needs ClassPermanent, which a verdict with
	// TooLarge alone gets. See the function TooLarge.
	TooLarge bool
}

// sayable is v without a class that no mark and no rule can give: ClassAborted, or one out of range. Away and TooLarge
// give a class, or have no meaning beside it.
func (v Verdict) sayable() Verdict {
	if v.Class >= ClassAborted {
		v.Class = ClassUnknown
	}
	if v.Away && v.Class == ClassUnknown {
		v.Class = ClassTransient
	}
	v.Away = v.Away && v.Class == ClassTransient
	if v.TooLarge && v.Class == ClassUnknown {
		v.Class = ClassPermanent
	}
	v.TooLarge = v.TooLarge && v.Class == ClassPermanent
	return v
}

// unsayable returns an error if no mark and no rule can give v.
func (v Verdict) unsayable() error {
	if v.Class == ClassAborted {
		return errors.New("it gives the class aborted, which no error has by itself: a message's own context decides it; " +
			"give transient, to try again")
	}
	if v.Class > ClassAborted {
		return fmt.Errorf("it gives the class %d, which does not exist", uint8(v.Class))
	}
	if v.Away && v.sayable().Class != ClassTransient {
		return fmt.Errorf("it gives the class %s with Away: an error that is not about the message passes with time; give "+
			"transient, or leave out Away", v.Class)
	}
	if v.TooLarge && v.sayable().Class != ClassPermanent {
		return fmt.Errorf("it gives the class %s with TooLarge: a size does not pass with time; give permanent, or leave "+
			"out TooLarge", v.Class)
	}
	return nil
}

// fill takes from other what v does not say.
func (v Verdict) fill(other Verdict) Verdict {
	if v.Class == ClassUnknown {
		v.Class, v.NotNow, v.Away, v.TooLarge = other.Class, other.NotNow, other.Away, other.TooLarge
	}
	if v.Reason == "" {
		v.Reason = other.Reason
	}
	if v.Description == "" {
		v.Description = other.Description
	}
	if v.RetryAfter <= 0 {
		v.RetryAfter = max(other.RetryAfter, 0)
	}
	return v
}

// MarshalText returns the name of the class, as String does.
func (c Class) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText reads the name of a class, as String returns it. Any other text is an error, and leaves the class as it
// is.
func (c *Class) UnmarshalText(text []byte) error {
	for i, name := range classNames {
		if name == string(text) {
			*c = Class(i)
			return nil
		}
	}
	return fmt.Errorf("classify: unknown class %q: use the name of one, such as %q", text, ClassPermanent)
}
