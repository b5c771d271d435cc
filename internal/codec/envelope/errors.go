package envelope

import (
	"errors"
	"fmt"
)

var (
	// ErrNoKeys is the error of a sealed letter where no Sealer is configured.
	ErrNoKeys = errors.New("no keys are configured: set spillway.Config.Seal, the Seal of letters.NewStore or " +
		"redrive.Rules.Seal; the command redrive takes --keys")
	// ErrUnknownKey is returned by Keys that do not have a key, and know that they will not have it later.
	ErrUnknownKey = errors.New("the keys do not have this key: add it to them, as an old key")
	// ErrUnavailable is the error of Keys that failed for now. It says nothing of the letter.
	ErrUnavailable = errors.New("the keys are unavailable: see to the KMS or to what else holds them")
	// ErrDamaged is the error of bytes that do not open.
	ErrDamaged = errors.New("the envelope does not open: it is cut or changed, or the key of this id is another one: " +
		"compare the key with that of the process that sealed, and the letter with a backup")
	// ErrOtherLetter is the error of an envelope in a letter that it was not made for.
	ErrOtherLetter = errors.New("the envelope belongs to another letter: compare both letters with a backup")
)

// Error is the error of an envelope. It wraps one of the Err values.
type Error struct {
	// KeyID names the key, as far as it can be read.
	KeyID string
	Err   error
}

// Error names the key.
func (e *Error) Error() string {
	if e.KeyID == "" {
		return fmt.Sprintf("seal: %v", e.Err)
	}
	return fmt.Sprintf("seal: sealed with key %q: %v", e.KeyID, e.Err)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }
