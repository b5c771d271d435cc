package privacy

import (
	"regexp"
	"strings"
)

const (
	// inPath is what a path and a query have. A colon or a comma can be the next word's.
	inPath = `[\w.\-/%@~+=?&!$]`
	// cutMark is in a text that was cut before it came here: see boundedtext.
	cutMark = "…[cut, "
)

// form is a secret that is known by what stands around it.
type form struct {
	has    string         // a text that lacks this word is not looked at
	around int            // how far from the word the form begins and ends, or 0 for any distance
	secret *regexp.Regexp // its groups, or all of it
	ok     func(groups []string) bool
}

func plainForm(has, secret string) form { return form{has: has, secret: regexp.MustCompile(secret)} }

var forms = []form{
	// JSON web tokens
	plainForm("eyJ", `\beyJ[\w-]{5,}\.[\w.-]+`),
	// behind the scheme of an Authorization header
	{"earer", 0, schemed, isSchemed}, {"asic", 0, schemed, isSchemed},
	// webhooks of chats: their path is their password
	plainForm("hooks.slack.com/", `hooks\.slack\.com/(?:services|workflows|triggers)/(`+inPath+`{8,})`),
	plainForm("/api/webhooks/", `/api/webhooks/(`+inPath+`{16,})`),
	plainForm("webhook.office.com/", `webhook\.office\.com/(`+inPath+`{16,})`),
	plainForm("api.telegram.org/bot", `api\.telegram\.org/bot([\w:-]{30,})`),
	// what Azure AD, Terraform Cloud, MaxMind and Facebook give to programs
	{"Q~", 64, regexp.MustCompile(`(?:^|[^\w.~-])([\w.~]{3}\dQ~[\w.~-]{31,34})`), nil},
	plainForm(".atlasv1.", `\b\w{14}\.atlasv1\.[\w=-]{60,}`),
	{"_mmk", 64, regexp.MustCompile(`\b[A-Za-z0-9]{6}_[A-Za-z0-9]{29}_mmk\b`), nil},
	{"|", 64, regexp.MustCompile(`\b\d{15,16}\|[\w-]{27,40}`), nil},
	// private keys in PEM, also cut ones
	plainForm("PRIVATE KEY", `-----BEGIN [^\n-]{0,40}PRIVATE KEY[^\n-]{0,20}-----`+
		`(?:(?:[^-]|-[^-])*-----END [^\n-]{0,60}-----|[\w\s+/=\\:,-]*)`),
	// what net/url repeats of a password: parse "amqp://ops:hun/ter2@mq": invalid port ":hun" after host
	{"@", 2 << 10, regexp.MustCompile(`://[^:@\s"]*:([^"\n]*)@[^" \n]*": [^"\n]{0,62}":?((?:[^"\\\n]|\\.)+)`),
		func(groups []string) bool { return strings.Contains(groups[1], groups[2]) }},
	// net/url, in a URL that a # in the password cut: parse "amqp://ops:hun": invalid port ":hun" after host
	{`": invalid port ":`, 0, regexp.MustCompile(`:([^:"\n]+)": invalid port ":([^"\n]+)" after host`),
		func(groups []string) bool { return groups[1] == groups[2] && !isDigits(groups[1]) }},
	// a url.URL as fmt prints it with %+v
	plainForm(" User:", ` User:[^\s{}:]*:([^\s{}]+) Host:`),
	// package flag, or pflag: invalid value "x" for flag -password, or invalid argument "x" for "--password" flag
	{`" for `, 0, regexp.MustCompile(`(?:value|argument) "([^\n]*?)" for (?:flag -|"-)[\w.-]+`),
		func(groups []string) bool { return namesOne(groups[0]) }},
	// Half of a secret has no shape: the user of a URL whose @ is behind the cut, groups of a card, a word with more than
	// letters in it, or a long one. Of a word without an end the last 4 KiB are masked.
	plainForm(cutMark, `://([^@ \n"]*)…\[cut, `),
	plainForm(cutMark, `((?:\d{4} )*\d+)…\[cut, `),
	{cutMark, overlap, regexp.MustCompile("([^\\x00-\\x20\\x7f\"'`{}[\\](),;&<>]+)" + `…\[cut, `),
		func(groups []string) bool { return len(groups[1]) > 12 || strings.ContainsFunc(groups[1], isNoLetter) }},
}

var schemed = regexp.MustCompile(`\b(?:(?:Bearer|bearer|Basic|basic)[ \t]{1,8})+([\w.~+/=-]{6,})`)

func isSchemed(groups []string) bool {
	return !strings.HasPrefix(groups[1], "realm=") && !isWords(groups[1])
}

func isNoLetter(r rune) bool { return r > 'z' || !isLetter(byte(r)) }

func findForms(text string, found *spans) {
	for _, f := range forms {
		around := f.around
		if around == 0 {
			around = len(text)
		}
		for from := 0; from < len(text); from += around {
			word := strings.Index(text[from:], f.has)
			if word < 0 {
				break
			}
			from += word
			start := max(0, from-around)
			near := text[start:min(len(text), from+2*around)]
			for _, at := range f.secret.FindAllStringSubmatchIndex(near, -1) {
				if f.ok == nil || f.ok(groupsOf(near, at)) {
					found.addGroups(at, start)
				}
			}
		}
	}
}

// groupsOf returns a match and its groups.
func groupsOf(text string, at []int) (groups []string) {
	for ; len(at) > 0; at = at[2:] {
		groups = append(groups, text[max(0, at[0]):max(0, at[1])])
	}
	return groups
}
