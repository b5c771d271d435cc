// Package parked lists what waits in the order of its key, in the table spillway_parked, and writes what people decide
// about it. Package sequence parks messages there and lets them go on.
package parked

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"time"

	"github.com/watermill-spillway/spillway/internal/codec/metadatacodec"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database"
	"github.com/watermill-spillway/spillway/internal/sqlstore/keytable"
)

// MaxWrite bounds every statement, the wait for others included.
const MaxWrite = 30 * time.Second

// within returns the database of db, or nil if that has no table of parked messages.
func within(ctx context.Context, db *sql.DB) (*database.Database, error) {
	on, err := database.Detect(ctx, db)
	if err != nil {
		return nil, err
	}
	if there, err := on.Has(ctx, keytable.Parked); err != nil || !there {
		return nil, err
	}
	return on, nil
}

// Source is a partition of a topic, for one consumer group.
type Source struct {
	Group, Topic string
	Partition    int32
}

// Hash tells sources apart beside each offset, whatever their names hold.
func (s Source) Hash(service string) string {
	var b []byte
	for _, part := range []string{service, s.Group, s.Topic} {
		b = metadatacodec.Append(b, part)
	}
	sum := sha256.Sum256(binary.BigEndian.AppendUint32(b, uint32(s.Partition)))
	return string(sum[:])
}

const (
	// readable is the longest key that stands for itself.
	readable = 200
	hashed   = readable + 1 // bytes of what stands for a longer one
	// Alone is the length of what stands for a message without a key.
	Alone = readable + 2
)

// LaneOf returns what stands for a key: the key itself if it is short, and otherwise its head and its hash. No two keys
// have the same.
func LaneOf(key []byte) []byte {
	if len(key) <= readable {
		return key
	}
	sum := sha256.Sum256(key)
	return append(append(make([]byte, 0, hashed), key[:hashed-len(sum)]...), sum[:]...)
}

// LaneAlone is that of a message without a key, which is a sequence by itself.
func LaneAlone(position int64, fingerprint []byte) []byte {
	lane := binary.BigEndian.AppendUint64(make([]byte, Alone-8, Alone), uint64(position))
	copy(lane, fingerprint)
	return lane
}

// NotNil returns b, or no bytes: some drivers read an empty value as nil.
func NotNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}
