package erasedtext

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"

	"github.com/watermill-spillway/spillway/internal/metadatacodec"
)

// Selector returns the hash that is on record for ids or metadata, so that the record of an erasure is found by those
// who know what was asked for. A value that can be guessed can be recognised by it.
func Selector(ids []string, metadata map[string]string) string {
	parts := metadatacodec.Append(nil, "spillway erasure")
	for _, id := range slices.Sorted(slices.Values(ids)) {
		parts = metadatacodec.Append(parts, id)
	}
	for _, key := range slices.Sorted(maps.Keys(metadata)) {
		parts = metadatacodec.Append(metadatacodec.Append(parts, key), metadata[key])
	}
	sum := sha256.Sum256(parts)
	return "sha256:" + hex.EncodeToString(sum[:])
}
