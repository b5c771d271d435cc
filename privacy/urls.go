package privacy

import (
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The URL ends at a blank or a quote; in quotes, as in an error of package net/url, its password may have a blank. The
// password may have a slash in it. Of HTTP the user can be a token, and an @ can be in the path.
var (
	isHTTP     = regexp.MustCompile(`(?i)(?:^|[^\w+.-])https?[\w+.-]*$`).MatchString
	scheme     = regexp.MustCompile(`[\w+.-]*://`)
	wholeURL   = regexp.MustCompile("^[^\"`<>\\s" + control + "]*")
	quotedURL  = regexp.MustCompile("^[^\"`" + control + "]*")
	ofHTTP     = regexp.MustCompile(`^(?:([^/?#]+)@|([^@/?#:]*:\d*[^\d@/?#][^@/?#]*[/?#].*)@)`)
	ofOthers   = regexp.MustCompile(`^(?:[^/?#:@]*:([^/?#]+)@|[^@:]*:(.+)@)`)
	quoteAhead = regexp.MustCompile("[\"'`]" + `[\w+.-]*$`).MatchString
)

// findURLs finds passwords in URLs.
func findURLs(text string, found *spans) {
	if strings.IndexByte(text, '@') < 0 {
		return
	}
	for from := 0; ; {
		i := strings.Index(text[from:], "://")
		if i < 0 {
			return
		}
		i += from
		from = i + len("://")
		secret, before, url := ofOthers, text[max(0, i-32):i], text[from:min(len(text), from+2<<10)]
		if isHTTP(before) {
			secret = ofHTTP
		}
		at := secret.FindStringSubmatchIndex(one(wholeURL.FindString(url)))
		if at == nil && quoteAhead(before) {
			at = secret.FindStringSubmatchIndex(one(quotedURL.FindString(url)))
		}
		found.addGroups(at, from)
	}
}

// one cuts the next URL off: several can have a comma between, or one is in the query of the other.
func one(url string) string {
	if next := scheme.FindStringIndex(url); next != nil {
		url = url[:max(0, next[0]-1)]
	}
	return url
}

// What stands around the @ of an address: user:password@host:port, user:password@host/name, and that of MySQL,
// user:password@tcp(host:port)/name, also without a host.
var (
	userBefore = regexp.MustCompile(`^[\w.+-]+:[^/]`)
	hostBehind = regexp.MustCompile(`^(?:/|\[[0-9a-fA-F:]|[\w.-]*\(|[\w.-]+(?:/|:\d))`)
)

// findAddresses finds passwords in addresses that are no URLs.
func findAddresses(text string, found *spans) {
	for at, c := range []byte(text) {
		if c != '@' || !hostBehind.MatchString(text[at+1:min(len(text), at+256)]) {
			continue
		}
		start := max(0, at-128)
		start += 1 + strings.LastIndexAny(text[start:at], " \t\r\n\"'`=")
		if user := userBefore.FindStringIndex(text[start:at]); user != nil {
			found.add(start+user[1]-1, at)
		}
	}
}

// findCards finds card numbers: digits with the length and the beginning of an issuer's numbers and a right check
// digit, alone or in groups of four and more.
func findCards(text string, found *spans) {
	for i := 0; i < len(text); i++ {
		if !isDigit(text[i]) {
			continue
		}
		next := i // where a number can begin again: behind the first group
		for next < len(text) && isDigit(text[next]) {
			next++
		}
		if i == 0 || !isWord(text[i-1]) && !(i > 1 && text[i-1] == '.' && isDigit(text[i-2])) {
			if end := cardEnd(text, i); end > i {
				found.add(i, end)
				next = end
			}
		}
		i = next
	}
}

// cardEnd returns where the card number ends that begins at i, or 0.
func cardEnd(text string, i int) (end int) {
	var digits [19]byte
	n, separator := 0, ""
	for i < len(text) {
		group := 0
		for ; i < len(text) && isDigit(text[i]); i++ {
			if n == len(digits) {
				return end
			}
			digits[n] = text[i]
			n++
			group++
		}
		fraction := separator == "" && i+1 < len(text) && text[i] == '.' && isDigit(text[i+1]) && n > 4
		if (i == len(text) || !isWord(text[i])) && !fraction && isCard(digits[:n]) {
			end = i
		}
		if group < 4 {
			return end
		}
		next := separatorAt(text, i)
		i += len(next)
		if next == "" || i >= len(text) || !isDigit(text[i]) || separator != "" && separator != next {
			return end
		}
		separator = next
	}
	return end
}

// separatorAt returns the separator between groups of a card number that stands at i, or nothing.
func separatorAt(text string, i int) string {
	r, size := utf8.DecodeRuneInString(text[i:])
	if strings.ContainsRune(".+\u2212", r) || unicode.In(r, unicode.Zs, unicode.Pd) {
		return text[i : i+size]
	}
	return ""
}

// issued is how the numbers of issuers of cards begin, and their lengths.
var issued = regexp.MustCompile(`^(4\d{12}(\d{3}){0,2}|5[1-5]\d{14}|2(22[1-9]|2[3-9]\d|[3-6]\d\d|7[01]\d|720)\d{12}|` +
	`3[47]\d{13}|3[068]\d{12}|35(2[89]|[3-8]\d)\d{12}|6[0245]\d{14,17})$`)

// isCard reports whether digits can be the number of a card.
func isCard(digits []byte) bool {
	return len(digits) >= 13 && luhn(digits) && issued.MatchString(string(digits))
}

func luhn(digits []byte) bool {
	sum := 0
	for i, d := range digits {
		d -= '0'
		if (len(digits)-i)%2 == 0 {
			if d *= 2; d > 9 {
				d -= 9
			}
		}
		sum += int(d)
	}
	return sum%10 == 0
}
