package seal

import "github.com/watermill-spillway/spillway/internal/envelope"

var (
	// ErrNoKeys is the error of a sealed letter if no Sealer is configured.
	ErrNoKeys = envelope.ErrNoKeys
	// ErrUnknownKey is returned by Keys that do not have a key, and know that they will not have it later.
	ErrUnknownKey = envelope.ErrUnknownKey
	// ErrUnavailable is the error of Keys that failed for now. It says nothing of the letter.
	ErrUnavailable = envelope.ErrUnavailable
	// ErrDamaged is the error of bytes that do not open.
	ErrDamaged = envelope.ErrDamaged
	// ErrOtherLetter is the error of an envelope in a letter that it was not made for.
	ErrOtherLetter = envelope.ErrOtherLetter
)
