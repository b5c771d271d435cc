// Package privacy masks secrets in what is shown of messages: in the texts of letters, in log lines, in the labels of
// metrics, in the attributes of spans, in notices, and in the terminal.
//
// # The redactor
//
// A Redactor is made once, and every part is given the same: set spillway.Config.Privacy. Without it, credentials are
// masked. None turns masking off.
//
//   - Text masks a free text: an error, a panic, a stack, a field of a log line.
//   - Error masks an error that is returned or logged, and wraps it.
//   - Metadata masks the value of a metadata key.
//   - Payload masks a payload, by JSON paths.
//
// A masked value is Mark, so the same text with another secret reads the same, and causes group as before. What is
// masked twice stays as it is.
//
// Masking changes what is shown. It never changes what is redriven: payload and metadata of a letter keep their bytes.
// A person who may read the table of letters, or a dead-letter topic, reads them.
//
// # What is masked by default
//
//   - Values of names such as password, client_secret, access_token, apiKey, Authorization and Cookie, in all
//     notations: JSON, structs as fmt prints them, headers, queries, forms, XML, flags of a command line, connection
//     strings.
//   - Passwords in URLs and in addresses such as user:password@tcp(host)/name. Of http, the user too.
//   - What stands behind Bearer and Basic, JSON web tokens, private keys in PEM, keys of cloud providers by their
//     prefix, and webhooks of chats.
//   - Card numbers: right length, right beginning, right check digit.
//
// They are also found if they are percent-encoded, escaped as in JSON or in Go's %q, or in base64, two such encodings
// deep. Names of persons and the like have no shape: name them by Rules.Metadata, Rules.Patterns and Rules.Payload.
//
// # What is not masked
//
//   - A password of letters alone in a sentence with more words behind: "password: correct horse".
//   - A password without quotes behind its first space.
//   - A YAML block: "password: |", and the value in the next lines.
//   - Short flags of a command line: mysql -pVALUE, curl -u user:VALUE.
//   - A struct without names, as %v prints it: {ops hunter2}.
//   - A credential of lower case letters alone behind an unknown scheme: Authorization: Acme swordfish.
//   - A secret that a program split, compressed, encrypted, or encoded in another way.
//   - A value that no rule, name or shape knows, such as "hunter2 was refused".
//
// # Cost and bounds
//
// Masking takes time in proportion to the text, patterns included: they are RE2. Text returns at most MaxText bytes.
// Texts exist only where a message failed, so a message that succeeds costs nothing. Mask before you cut: half of a
// secret has no shape.
package privacy
