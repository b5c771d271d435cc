// Package askonce lets one instance of a service ask a costly question, and all instances read the answer.
//
//	q, err := askonce.New(ctx, db, "shop", "letters/1")
//	a, err := q.Ask(ctx, 30*time.Second, func(ctx context.Context) ([]byte, error) { … })
//
// The answer is a row of the table spillway_answers. An instance that finds an answer that is too old takes the turn to
// ask: it moves turn_at on, with one statement that holds only if no other instance did. So two turns are never closer
// than the interval, whatever the number of instances and calls. All others read the row by its key.
//
// An instance that dies, hangs or fails in its turn costs one interval: then the turn is free again, and there is no
// lease to wait for. Ages are by the database's clock, so clocks of instances that differ do not matter.
package askonce

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/watermill-spillway/spillway/internal/sqlstore/database"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database/schema"
	"github.com/watermill-spillway/spillway/internal/timing"
)

var table = schema.Table{Component: "answers", Name: "spillway_answers", Key: []string{"service", "name"},
	Versions: []schema.Version{{
		File: "0010_answers.sql", Columns: []string{"service", "name", "turn_at", "answered_at", "answer"},
	}}}

// Question is a question that instances of a service share. It is safe for concurrent use.
type Question struct {
	db                     *database.Database
	service, name          any
	look, take, begin, put string
	turn                   string
}

// New returns the Question of this name. It creates its table if that is missing, within 30 seconds. The name says the
// version of the answer's form too, so that programs of different versions do not read each other's answers.
func New(ctx context.Context, db *sql.DB, service, name string) (*Question, error) {
	on, err := database.Open(ctx, "open the table of shared answers", db, service, table)
	if err != nil {
		return nil, err
	}
	conflict := `ON CONFLICT (service, name) DO NOTHING`
	if on.Kind() == database.MySQL {
		conflict = `ON DUPLICATE KEY UPDATE name = spillway_answers.name`
	}
	return &Question{
		db: on, service: on.Text(service), name: on.Text(name),
		look: on.Statement(`SELECT now_us() - turn_at, now_us() - answered_at, answered_at, answer FROM spillway_answers WHERE service = ? AND name = ?`),
		// A turn far in the future is of a clock that went back since.
		take:  on.Statement(`UPDATE spillway_answers SET turn_at = now_us() WHERE service = ? AND name = ? AND (turn_at <= now_us() - ? OR turn_at > now_us() + ?)`),
		begin: on.Statement(`INSERT INTO spillway_answers (service, name, turn_at, answered_at, answer) VALUES (?, ?, 0, 0, ?) ` + conflict),
		turn:  on.Statement(`SELECT turn_at FROM spillway_answers WHERE service = ? AND name = ?`),
		// An instance that was slow does not put its answer over that of a later turn.
		put: on.Statement(`UPDATE spillway_answers SET answered_at = ?, answer = ? WHERE service = ? AND name = ? AND (answered_at < ? OR answered_at > now_us())`),
	}, nil
}

// Answer is what an instance learnt.
type Answer struct {
	Text []byte
	// Age is how long ago the turn began in which it was learnt, by the database's clock.
	Age time.Duration
}

// Ask returns the answer that is there, or that of ask if no instance took a turn within every. While another instance
// asks, Ask returns the old answer. If there is none yet, Ask waits for it until ctx ends.
func (q *Question) Ask(ctx context.Context, every time.Duration,
	ask func(context.Context) ([]byte, error)) (Answer, error) {
	for {
		found, err := q.row(ctx)
		if err != nil {
			return Answer{}, err
		}
		if !found.there {
			if _, err := q.db.Exec(ctx, q.begin, q.service, q.name, q.db.Bytes("")); err != nil {
				return Answer{}, err
			}
		}
		if !found.there || found.turn >= every || found.turn < -every {
			turn, mine, err := q.takeTurn(ctx, max(every.Microseconds(), 1))
			if err != nil {
				return Answer{}, err
			}
			if mine {
				return q.answer(ctx, turn, ask)
			}
		}
		if found.answered {
			return found.Answer, nil
		}
		if !timing.Wait(ctx, 20*time.Millisecond+rand.N(30*time.Millisecond)) {
			return Answer{}, fmt.Errorf("another instance asks the database, and has not answered: %w",
				context.Cause(ctx))
		}
	}
}

// takeTurn takes the turn to ask, if it is free, and returns when it began.
func (q *Question) takeTurn(ctx context.Context, every int64) (turn int64, mine bool, err error) {
	err = q.db.Write(ctx, func(tx *sql.Tx) error {
		mine = false
		result, err := tx.ExecContext(ctx, q.take, q.service, q.name, every, every)
		if err != nil {
			return err
		}
		n, err := result.RowsAffected()
		if mine = n > 0; err != nil || !mine {
			return err
		}
		return tx.QueryRowContext(ctx, q.turn, q.service, q.name).Scan(&turn)
	})
	return turn, mine, err
}

func (q *Question) answer(ctx context.Context, turn int64, ask func(context.Context) ([]byte, error)) (Answer, error) {
	text, err := ask(ctx)
	if err == nil {
		_, err = q.db.Exec(ctx, q.put, turn, q.db.Bytes(string(text)), q.service, q.name, turn)
	}
	return Answer{Text: text}, err
}

// row is what the table has.
type row struct {
	Answer
	there, answered bool
	turn            time.Duration // since then
}

func (q *Question) row(ctx context.Context) (found row, err error) {
	err = q.db.Query(ctx, func() { found = row{} }, func(rows *sql.Rows) error {
		var turn, age, answered int64
		if err := rows.Scan(&turn, &age, &answered, &found.Text); err != nil {
			return err
		}
		found.there, found.answered, found.turn = true, answered > 0, database.Microseconds(turn)
		found.Age = max(0, database.Microseconds(age))
		return nil
	}, q.look, q.service, q.name)
	return found, err
}
