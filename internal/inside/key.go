package inside

import "errors"

// ErrKeyReused is the error of a request whose key is on record for another request.
var ErrKeyReused = errors.New("the key was used for another request")
