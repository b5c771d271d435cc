package privacy

import "strings"

// kind is what a name says of its value.
type kind uint8

const (
	harmless kind = iota
	secret        // a token, a key
	password      // a word of its own can be the value
	several       // an array or an object of secrets; a number is a count
	line          // the value is the rest of the line, such as that of an Authorization header
)

// suffixes are the ends of names whose values are masked: lower case, letters alone.
var suffixes = []struct {
	name string
	kind kind
}{
	{"password", password}, {"passwd", password}, {"passwort", password}, {"passphrase", password}, {"passcode", password},
	{"pwd", password}, {"passwordhash", password}, {"passwordconfirmation", password}, {"passwordconfirm", password},
	{"secret", secret}, {"token", secret}, {"apikey", secret}, {"accesskey", secret}, {"secretkey", secret},
	{"privatekey", secret}, {"sharedkey", secret}, {"accountkey", secret}, {"authkey", secret}, {"signingkey", secret},
	{"encryptionkey", secret}, {"masterkey", secret}, {"sessionkey", secret}, {"subscriptionkey", secret},
	{"secretvalue", secret}, {"secretstring", secret}, {"credential", secret}, {"credentials", secret}, {"jwt", secret},
	{"sessionid", secret}, {"sessid", secret}, {"sharedaccesssignature", secret}, {"amzsignature", secret},
	{"googsignature", secret}, {"cardnumber", secret}, {"creditcard", secret}, {"ccnumber", secret}, {"cardno", secret},
	{"securitycode", secret}, {"secrets", several}, {"passwords", several}, {"apikeys", several}, {"authorization", line},
	{"cookie", line},
}

// whole are names that are masked only as a word of their own: "pin" is, "spin" and "mapping" are not.
var whole = map[string]kind{"pass": secret, "pin": secret, "otp": secret, "cvv": secret, "cvc": secret, "ssn": secret,
	"sig": secret}

// pages are names that end like those of secrets, and are places in a list.
var pages = []string{"pagetoken", "nexttoken", "continuationtoken", "synctoken", "pagingtoken"}

// maxName bounds how much of a name is looked at: its end.
const maxName = 64

// kindOf returns what the name says of its value.
func kindOf(name string) kind {
	if len(name) > maxName {
		name = name[len(name)-maxName:]
	}
	var letters [maxName]byte
	n, word := 0, 0 // word is where the last word of the name begins
	for i := range len(name) {
		c := name[i]
		switch {
		case 'a' <= c && c <= 'z':
		case 'A' <= c && c <= 'Z':
			if i > 0 && ('a' <= name[i-1] && name[i-1] <= 'z' ||
				isUpper(name[i-1]) && i+1 < len(name) && isLetter(name[i+1]) && !isUpper(name[i+1])) {
				word = n
			}
			c |= 0x20
		case '0' <= c && c <= '9':
			continue // password2, cvv2
		default:
			word = n
			continue
		}
		letters[n] = c
		n++
	}
	all := string(letters[:n])
	if n < 3 {
		return harmless
	}
	if k, ok := whole[all[word:]]; ok {
		return k
	}
	for _, s := range suffixes {
		if strings.HasSuffix(all, s.name) {
			for _, page := range pages {
				if strings.HasSuffix(all, page) {
					return harmless
				}
			}
			return s.kind
		}
	}
	return harmless
}

// isName reports whether c can be in a name.
func isName(c byte) bool { return isWord(c) || c == '-' || c == '.' }

// isWord reports whether c can be in a word: an ASCII letter, a digit, or an underscore.
func isWord(c byte) bool { return isLetter(c) || isDigit(c) || c == '_' }

func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func isUpper(c byte) bool { return 'A' <= c && c <= 'Z' }

func isSpace(c byte) bool { return c == ' ' || c == '\t' }

// isBreak reports whether c ends a line, or is another control character.
func isBreak(c byte) bool { return c < ' ' && c != '\t' || c == 0x7f }

func isQuote(c byte) bool { return c == '"' || c == '\'' || c == '`' }
