package conformance

// features are the rows of the matrix, in their order.
func features() []feature {
	return []feature{
		{"P1", "a refused dead letter keeps its message", (*bench).refusedLetter},
		{"P2", "the original survives its handler", (*bench).originalSurvives},
		{"P3", "shutdown in a backoff wait is no failure", (*bench).shutdownInBackoff},
		{"P4", "deadly messages do not stop the good ones", (*bench).nothingWedges},
		{"P7", "effects once over duplicates, restarts, redrives", (*bench).effectsOnce},
		{"R1", "retry in process, bounded", (*bench).retries},
		{"R2", "each attempt gets the message as it arrived", (*bench).attemptsSeeOriginal},
		{"R3", "no wait past the message's deadline", (*bench).deadlineRespected},
		{"R4", "an error's retry-after is honoured", (*bench).retryAfter},
		{"D1", "the letter tells the whole story", (*bench).wholeStory},
		{"D2", "each class goes its way", (*bench).classes},
		{"D3", "naming", (*bench).naming},
		{"D4", "publish retried, shrunk, fallback", (*bench).fallback},
		{"D5", "a missing destination is an error at start-up", (*bench).missingDestination},
		{"D6", "what is added stays in its budget", (*bench).budget},
		{"D7", "letters of Watermill's PoisonQueue", (*bench).watermillLetters},
		{"D8", "what cannot be unmarshalled is set aside", (*bench).unreadable},
		{"D9", "one SQL transaction for everything", (*bench).oneTransaction},
		{"D10", "delivery limit over process deaths", (*bench).deadly},
		{"D11", "expired, going in circles, incomplete, rejected", (*bench).guards},
		{"D12", "no dead letters of dead letters", (*bench).parked},
		{"D13", "a failed handler's outputs stay", (*bench).failedOutputs},
		{"D15", "an undeliverable output sets its source aside", (*bench).undeliverableOutput},
		{"I2", "key, writes and outputs commit together", (*bench).transaction},
		{"I4", "outputs survive a failed publish", (*bench).recordedOutputs},
		{"V1", "letters come back through the router", (*bench).redriven},
		{"V2", "redrive keeps its rate", (*bench).redriveRate},
		{"V3", "redriven too often: quarantine", (*bench).quarantine},
		{"V4", "failure stripped, origin and history kept", (*bench).stripped},
		{"V8", "only to topics of the allow-list", (*bench).allowList},
		{"H1", "hostile ids, payloads and metadata", (*bench).hostileMessages},
		{"H2", "hostile handlers", (*bench).hostileHandlers},
		{"H3", "the broker's own hostile messages", (*bench).hostileRecords},
		{"H4", "an output of 2 MiB", (*bench).largeOutput},
		{"H5", "many publishers at once", (*bench).publishersAtOnce},
		{"F1", "killed at each step between receipt and ack", (*bench).killedAtEachStep},
		{"F2", "broker restarted between handling and ack", (*bench).brokerRestarted},
		{"F3", "dead-letter topic deleted while running", (*bench).destinationDeleted},
		{"F4", "dead-letter topic read-only", (*bench).destinationReadOnly},
		{"F5", "dead-letter broker cut off, slow, silent", (*bench).destinationUnreachable},
		{"F6", "another instance joins in a backoff wait", (*bench).joinedInBackoff},
		{"F7", "connection lost in the handler", (*bench).connectionLost},
		{"F8", "another instance joins under a busy handler", (*bench).joinedWhileBusy},
	}
}

// faults are rows on consumers in processes of their own, with a bench that has nothing open. Those that are true have
// the broker for themselves; the others, which mostly wait, run at the same time.
var faults = map[string]bool{"D10": false, "F1": true, "F2": true, "F3": false, "F4": false, "F5": false, "F6": false, "F7": false, "F8": false}
