package privacy

import "strings"

// shape is what tokens of one issuer look like: how they begin, and how many characters follow at least.
type shape struct {
	prefix string
	least  int
	in     func(byte) bool
}

func isUpperOrDigit(c byte) bool { return isUpper(c) || isDigit(c) }

func isToken(c byte) bool { return isWord(c) || c == '-' }

func isHex(c byte) bool { return isDigit(c) || 'a' <= c|0x20 && c|0x20 <= 'f' }

func isUpperOrDigitOrDash(c byte) bool { return isUpperOrDigit(c) || c == '-' }

func isBase64(c byte) bool { return isLetter(c) || isDigit(c) || strings.IndexByte("+/=_-", c) >= 0 }

func isDotted(c byte) bool { return isToken(c) || c == '.' }

func isMixed(c byte) bool { return isDotted(c) || strings.IndexByte("+/=", c) >= 0 }

func isBase32(c byte) bool { return isUpper(c) || '2' <= c && c <= '7' }

// families are keys and tokens that are known by how they look, wherever they stand: prefixes, and what follows each.
var families = []struct {
	least    int
	in       func(byte) bool
	prefixes string
}{
	{16, isUpperOrDigit, "AKIA ASIA ABIA ACCA A3T"}, {100, isBase64, "ABSK"}, // AWS
	{20, isWord, "ghp_ gho_ ghu_ ghs_ ghr_ github_pat_"},
	{16, isToken, "glpat- glcbt- gldt- glffct- glft- glimt- glagent- gloas- glptt- glrt- glsoat- GR1348941"}, // GitLab
	{10, isToken, "xoxa- xoxb- xoxe- xoxe.xoxb- xoxe.xoxp- xoxo- xoxp- xoxr- xoxs- xapp-"},                   // Slack
	{10, isWord, "sk_live_ sk_test_ sk_prod_ rk_live_ rk_test_ rk_prod_"}, {16, isWord, "whsec_"},            // Stripe
	{30, isToken, "AIza"}, {20, isToken, "ya29."}, {16, isToken, "GOCSPX-"}, // Google
	{32, isDotted, "pypi- dp.pt. dt0c01. tfp_ xkeysib- PMAK- nvapi-"},
	{32, isMixed, "SG. fio-u- sntrys_ pscale_oauth_ pscale_pw_ pscale_tkn_ duffel_test_ duffel_live_ glc_ ops_eyJ"},
	{50, isMixed, "scauth_ authress_"}, {79, isDotted, "pat"}, // Authress, Airtable
	{30, isWord, "npm_ lin_api_ hf_ api_org_ pnu_ rdme_ ntn_ CLOJARS_ AKCp cmVmd EZAK EZTK rubygems_"},
	{20, isToken, "sk- hvs. hvb. glsa_ pplx- sgp_ sbp_ figd_ dckr_pat_ tskey- gsk_ xai- lsv2_ HRKU- NRAK- NRJS- NRII-"},
	{20, isToken, "sq0atp- sq0csp- EAAA tk-us- dnkey- bedrock-api-key-"}, // Square, Scalingo, Defined, AWS
	{20, isToken, "access-sandbox- access-production- access-development- AQVN"},
	{32, isHex, "dop_v1_ doo_v1_ dor_v1_ dapi pul- sntryu_ shippo_live_ shippo_test_ SK s-s4t2ud- s-s4t2af-"},
	{24, isWord, "shpat_ shpss_ shpca_ shppa_"}, // Shopify
	{12, isToken, "FLWSECK_TEST- FLWPUBK_TEST- FLWSECK- sm_aat_ sm_pat_ sm_sat_"},
	{32, isWord, "p8e- ico-"}, {20, isWord, "LTAI"}, {40, isToken, "sha256~ fo1_ ATATT3"},
	{100, isBase64, "fm1a_ fm1r_ fm2_"}, {100, isWord, "EAAM EAAC"}, {100, isToken, "v1.0-"},
	{35, isHex, "live_ test_"}, {38, isToken, "YC"}, {40, isToken, "squ_ sqp_ sqa_"}, {43, isWord, "oy2"},
	{66, isDotted, "pat. sat."}, {70, isBase64, "eyJrIjoi"}, {86, isDotted, "t1."}, {130, isBase64, "sl."},
	{26, isUpperOrDigit, "API-"}, {34, isUpperOrDigitOrDash, "A3-"},
	{56, isBase32, "SU SA SO"}, // seeds of NATS
	{20, isUpperOrDigit, "AGE-SECRET-KEY-1"},
}

// shapes are those of families, by their first byte.
var shapes = func() (by [256][]shape) {
	for _, f := range families {
		for _, prefix := range strings.Fields(f.prefixes) {
			by[prefix[0]] = append(by[prefix[0]], shape{prefix, f.least, f.in})
		}
	}
	return by
}()

// findTokens finds keys and tokens by their shapes.
func findTokens(text string, found *spans) {
	resumed := map[string]int{} // what a token has is looked at once: a text of beginnings would take squares
	for i := range len(text) {
		if i > 0 && isWord(text[i-1]) && isWord(text[i]) { // of a longer word
			continue
		}
		for n := range shapes[text[i]] {
			s := &shapes[text[i]][n]
			if !strings.HasPrefix(text[i:], s.prefix) || i < resumed[s.prefix] {
				continue
			}
			start := i + len(s.prefix)
			end := start
			for end < len(text) && s.in(text[end]) {
				end++
			}
			resumed[s.prefix] = start
			if end-start >= s.least && !strings.HasPrefix(text[end:], "@openssh.com") { // the name of a kind of keys
				resumed[s.prefix] = end
				found.add(i, end)
			}
		}
	}
}

// isWords reports whether value is made of letters of one case, as words are.
func isWords(value string) bool {
	for i := range len(value) {
		if !isLetter(value[i]) && value[i] != '-' && value[i] != '/' && !(value[i] == '.' && i == len(value)-1) ||
			i > 0 && isUpper(value[i]) && !isUpper(value[i-1]) {
			return false
		}
	}
	return true
}
