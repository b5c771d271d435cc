package apiclient

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
)

// maxToken bounds a token, in bytes.
const maxToken = 16 << 10

// Token reads a token for each request, because what issues tokens renews its file. Without a file there is none. No
// error has anything of it.
func (n Names) Token(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	file, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("%s: %w", n.TokenFile, err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return "", fmt.Errorf("%s: %w", n.TokenFile, err)
	}
	if mode := info.Mode(); runtime.GOOS != "windows" && mode.Perm()&0o027 != 0 {
		return "", fmt.Errorf("%s is %s, which others may read or write (mode %#o): chmod 600 it", n.TokenFile, path,
			mode.Perm())
	}
	text, err := io.ReadAll(io.LimitReader(file, maxToken+1))
	if err != nil {
		return "", fmt.Errorf("%s: %w", n.TokenFile, err)
	}
	token := strings.TrimSpace(string(text))
	switch {
	case token == "":
		return "", fmt.Errorf("%s is %s, which is empty: write your token into it", n.TokenFile, path)
	case len(token) > maxToken || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }):
		return "", fmt.Errorf("%s is %s, which has no token: it must be one line of visible ASCII, at most %d bytes",
			n.TokenFile, path, maxToken)
	}
	return token, nil
}
