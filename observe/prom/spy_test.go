package prom_test

import (
	"database/sql"
	"strings"
	"sync"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/testing/testkit/child"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/databases"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/wire"
)

// spy notes the statements of a pool, and can refuse them, hang or panic.
type spy struct {
	mu     sync.Mutex
	asked  []string
	refuse func(statement string) error
}

func spied(t *testing.T, d databases.Database, address string) (*sql.DB, *spy) {
	t.Helper()
	s := &spy{}
	db, w := wire.Open(t, child.Driver(d.Name), address)
	w.Set(func(_ *wire.Conn, statement string) error { return s.note(statement) }, nil)
	return db, s
}

func (s *spy) note(statement string) error {
	s.mu.Lock()
	s.asked = append(s.asked, statement)
	refuse := s.refuse
	s.mu.Unlock()
	if refuse != nil {
		return refuse(statement)
	}
	return nil
}

// count returns how many statements had these words.
func (s *spy) count(words string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, statement := range s.asked {
		if strings.Contains(statement, words) {
			n++
		}
	}
	return n
}

func (s *spy) with(refuse func(statement string) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse = refuse
}

func newMessage(id string) *message.Message { return message.NewMessage(id, []byte("acme")) }
