// Package seal encrypts dead letters at rest. A copy of the dead-letter topic, or a dump of the table of a
// letters.Store, shows neither payloads nor the producer's metadata.
//
// # What is sealed
//
// A Sealer puts the payload of a letter, and the metadata of its producer, into one envelope. The envelope takes the
// place of the payload. The keys that New lists stay as they are: filters and searches find a letter by these
// alone. Everything that Spillway adds stays readable: origin, class, reason, counts, and the texts of errors. So a
// sealed letter is listed, grouped, filtered, redriven and audited as any other. The texts of errors and panics are not
// sealed: what hides secrets in them is masking. The id of the message and the key of its partition (x-original-key)
// stay readable too.
//
// Set one Sealer in spillway.Config.Seal. It seals in the queue, before a letter leaves the process for any publisher,
// and opens for redrive. Messages in retry stages are not sealed: they are no letters.
//
// # The envelope
//
//	version      1 byte, 1
//	key id       1 byte of length, then 1 to 64 of A-Z a-z 0-9 . _ - : /
//	wrapped      varint of length, then the wrapped data key of a KMS, or nothing
//	fingerprint  16 bytes
//	nonce        12 random bytes
//	letter       origin topic and message id, each behind a varint of its length; the count of redrives as a varint
//	ciphertext   AES-256-GCM of the content, with 16 bytes of tag
//
// All that stands before the ciphertext is the additional data. So the tag binds an envelope to its letter: to the
// origin topic, to the id of the message (for an id that is longer than 36 bytes or not printable ASCII: the first 16
// bytes of its SHA-256), and to how often the message was redriven. An envelope that was moved to another letter does
// not open: ErrOtherLetter. A letters.Store binds its row too. The identity of the row is made of the service, the
// consumer, the letter and the fingerprint, and the Store compares the identity before it uses an opened letter.
//
// The fingerprint is an HMAC-SHA256 of the content under the letter's key, cut to 16 bytes. With it a Store sees that a
// letter arrived again, which random nonces would hide. It says nothing of the content without the key. Under a new key
// the fingerprint is another one: a letter that arrives again just then is stored once more.
//
// Encryption and fingerprint use keys of their own, derived from the secret with HKDF-SHA256. A nonce is random: seal
// at most 2^32 letters with one key, 4 billion. Then the chance that two nonces are equal is at most 2^-33.
//
// # Keys
//
// Keys gives the current key and finds old ones. ReadKeyring and ParseKeyring return Keys in memory, from a file or the
// environment. For a KMS, write Keys that let the KMS wrap a data key, see the example. Keep the data key for some
// minutes: Current is called for each letter.
//
// To rotate, give each process the new key beside the old one; then make the new key the current one. New letters are
// sealed with the current key. letters.Store.Reseal seals old ones again. letters.Store.Count with Filter.SealKeys
// counts the letters of a key: the key may go when it has none, and when no topic holds letters of it.
//
// # What is refused
//
// If a letter cannot be sealed, the queue publishes nothing: it holds or nacks the message, as it does if a publisher
// refuses. If a letter cannot be opened, the letter stays as it is, and the error names its key and what to do:
//
//	ErrNoKeys        no Sealer is configured
//	ErrUnknownKey    the Keys do not have the key
//	ErrUnavailable   the Keys failed, for example because the KMS is unavailable; try again later
//	ErrDamaged       the envelope is cut or changed, or the key has the right id and the wrong bytes
//	ErrOtherLetter   the envelope belongs to another letter
//
// # What is not promised
//
//   - Deletion: letters of before are clear in backups, in the log of the database and in pages it has not reused, also
//     after Reseal.
//   - Secrecy of sizes, times, topics, ids and counts. Two letters of one message with the same content have the same
//     fingerprint.
//   - Memory: secrets and opened letters are in the memory of the process, and are not wiped.
package seal
