package letters

import (
	"database/sql"

	"github.com/watermill-spillway/spillway/internal/inside"
)

// Inside returns what Spillway's own packages call of a Store, and its users do not. Nothing is promised of it.
func (s *Store) Inside() inside.Letters[Filter, Letter, Act, RetentionRule, Status] {
	return (*inner)(s)
}

// inner is a Store with the methods that only Spillway's own packages call.
type inner Store

func (in *inner) DB() *sql.DB { return in.db.DB() }

func (in *inner) Service() string { return in.service }
