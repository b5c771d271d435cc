package letters

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill"
)

// Take leases at most n letters, 1 to MaxLimit, that f chooses and that have no lease, in the order of Seq. No other
// Take returns them before the lease expires, or before they are marked, released or postponed. Take passes over
// letters that another transaction is writing at this moment, and letters that were discarded or erased.
// StoreConfig.MaxRead may make it fewer than n. Only a Take that returns none means that there are no more letters.
// Filter.Limit is not used.
func (s *Store) Take(ctx context.Context, f Filter, lease time.Duration, n int) ([]Taken, error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	if err := f.validateInOrder(); err != nil {
		return nil, err
	}
	if lease <= 0 || n < 1 || n > MaxLimit {
		return nil, fmt.Errorf("letters: take %d letters for %s: the number must be 1 to %d and the lease positive", n, lease,
			MaxLimit)
	}
	f, any := f.redrivable()
	if !any {
		return nil, nil
	}
	var taken []Taken
	token, left := watermill.NewUUID(), s.maxRead
	for len(taken) < n && left > 0 {
		chosen, err := s.choose(ctx, f, true, n-len(taken), left, len(taken) == 0)
		if err == nil && len(chosen.seqs) == 0 {
			break
		}
		var more []Taken
		if err == nil {
			f.After, left = chosen.seqs[len(chosen.seqs)-1], left-chosen.bytes
			more, err = s.lease(ctx, f, chosen.seqs, token, lease)
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("letters: take: %w", err), s.giveUp(ctx, taken))
		}
		taken = append(taken, more...)
	}
	return taken, nil
}

// redrivable returns f without letters that no redrive may take. It reports whether f can choose others.
func (f Filter) redrivable() (Filter, bool) {
	if len(f.Statuses) == 0 {
		return f, true
	}
	f.Statuses = slices.DeleteFunc(slices.Clone(f.Statuses), func(s Status) bool { return !s.Redrivable() })
	return f, len(f.Statuses) > 0
}

// present returns f without letters that were erased: they have no message any more. It reports whether f can choose
// others.
func (f Filter) present() (Filter, bool) {
	if slices.Contains(f.Statuses, StatusErased) {
		f.Statuses = slices.DeleteFunc(slices.Clone(f.Statuses), func(s Status) bool { return s == StatusErased })
		return f, len(f.Statuses) > 0
	}
	return f, true
}

// Free returns the Seqs of the first n letters, 1 to MaxLimit, that f chooses and that have no lease. Letters that
// another transaction is writing are among them. StoreConfig.MaxRead may make it fewer than n. Filter.Limit is not
// used.
func (s *Store) Free(ctx context.Context, f Filter, n int) ([]int64, error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	if err := f.validateInOrder(); err != nil {
		return nil, err
	}
	if n < 1 || n > MaxLimit {
		return nil, fmt.Errorf("letters: look for %d free letters: the number must be 1 to %d", n, MaxLimit)
	}
	f, any := f.redrivable()
	if !any {
		return nil, nil
	}
	chosen, err := s.choose(ctx, f, true, n, s.maxRead, true)
	return chosen.seqs, wrapped("look for free letters", err)
}

// Lease leases those of the letters, at most MaxLimit, that f still chooses and that have no lease, as Take does. It
// reads all of them into memory: Free returns as many as StoreConfig.MaxRead allows.
func (s *Store) Lease(ctx context.Context, f Filter, seqs []int64, lease time.Duration) ([]Taken, error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	if err := f.validateInOrder(); err != nil {
		return nil, err
	}
	if lease <= 0 || len(seqs) > MaxLimit {
		return nil, fmt.Errorf("letters: lease %d letters for %s: the number must be at most %d and the lease positive",
			len(seqs), lease, MaxLimit)
	}
	f, any := f.redrivable()
	if len(seqs) == 0 || !any {
		return nil, nil
	}
	taken, err := s.lease(ctx, f, seqs, watermill.NewUUID(), lease)
	if err != nil {
		return nil, fmt.Errorf("letters: lease: %w", err)
	}
	return taken, nil
}
