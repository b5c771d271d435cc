package poison

// identityLength is the number of hexadecimal digits of a Letter.Identity.
const identityLength = 32

// identityOrNone returns value if it can be a Letter.Identity, and else nothing: any producer may have written it.
func identityOrNone(value string) string {
	if len(value) != identityLength {
		return ""
	}
	for _, c := range []byte(value) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return ""
		}
	}
	return value
}
