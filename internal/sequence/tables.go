package sequence

import "github.com/watermill-spillway/spillway/internal/keytable"

var table = keytable.Parked

// columns of a row that is written, in the order of Row.args.
const columns = `service, members, topic, part, source, lane, position, fingerprint, redrives, due_at, held, sent_at, consumer, key_id,
record_key, bytes, id, metadata, payload`
