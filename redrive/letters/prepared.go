package letters

import (
	"context"
	"database/sql"
	"errors"
	"sync"
)

// prepared are the statements of Publish, and those that mark one letter, on MySQL and SQLite. Without them a driver
// for MySQL prepares each statement each time, and that for SQLite parses it. Drivers for PostgreSQL keep theirs, as
// their settings allow behind a pooler of connections. The statements live as long as the *sql.DB, or until Close.
type prepared struct {
	mu         sync.Mutex
	statements map[string]*sql.Stmt
	closed     bool
}

// statement is a statement of a transaction, prepared or not.
type statement struct {
	tx       *sql.Tx
	text     string
	prepared *sql.Stmt
}

func (p *prepared) of(ctx context.Context, tx *sql.Tx, text string) statement {
	p.mu.Lock()
	defer p.mu.Unlock()
	if prepared := p.statements[text]; prepared != nil {
		return statement{tx, text, tx.StmtContext(ctx, prepared)}
	}
	return statement{tx, text, nil}
}

func (s statement) exec(ctx context.Context, args ...any) (sql.Result, error) {
	if s.prepared != nil {
		return s.prepared.ExecContext(ctx, args...)
	}
	return s.tx.ExecContext(ctx, s.text, args...)
}

func (s statement) query(ctx context.Context, args ...any) (*sql.Rows, error) {
	if s.prepared != nil {
		return s.prepared.QueryContext(ctx, args...)
	}
	return s.tx.QueryContext(ctx, s.text, args...)
}

func (s statement) row(ctx context.Context, args ...any) *sql.Row {
	if s.prepared != nil {
		return s.prepared.QueryRowContext(ctx, args...)
	}
	return s.tx.QueryRowContext(ctx, s.text, args...)
}

// prepare prepares a statement on the whole *sql.DB, unless that was done. It takes a connection of its own.
func (p *prepared) prepare(ctx context.Context, db *sql.DB, texts ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, text := range texts {
		if p.closed || p.statements[text] != nil {
			continue
		}
		statement, err := db.PrepareContext(ctx, text)
		if err != nil {
			return // Publish prepares it for itself, and returns the error
		}
		if p.statements == nil {
			p.statements = make(map[string]*sql.Stmt)
		}
		p.statements[text] = statement
	}
}

// close closes the statements. A transaction that uses one goes on.
func (p *prepared) close() (err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, statement := range p.statements {
		err = errors.Join(err, statement.Close())
	}
	p.statements = nil
	return err
}
