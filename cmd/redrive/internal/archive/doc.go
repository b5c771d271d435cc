// Package archive writes dead letters as JSON lines, and reads them again, without a loss: a letter that was exported
// and imported is the same letter, byte for byte, and the store recognises it.
//
//	{"spillway":1,"seq":7,"status":"waiting","seen":1,"stored_at":"…","dead_letter_topic":"orders.dlq",
//	 "id":"…","metadata":{"tenant":"blue","x-failure-class":"permanent",…},"payload":"{…}"}
//
// A payload, an id or a metadata value that is no text is base64 in payload_b64, id_b64 and metadata_b64, a list of
// pairs. A message without a payload has none; an empty payload is "". What a letter says of its failure is in the
// metadata, under the keys of the contract, at most 16 KiB.
package archive
