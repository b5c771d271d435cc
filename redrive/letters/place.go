package letters

import "database/sql"

// DB returns the database that the Store is on, for tables that stand beside its own.
func (s *Store) DB() *sql.DB { return s.db.DB() }

// Service returns StoreConfig.Service.
func (s *Store) Service() string { return s.service }
