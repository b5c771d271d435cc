package remote

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
)

// maxToken bounds a token, in bytes.
const maxToken = 16 << 10

// readToken reads a token for each request, because what issues tokens renews its file. Without a file there is none. No
// error has anything of it.
func readToken(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	file, err := os.Open(path)
	if err != nil {
		return "", configError("--token-file: %w", err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return "", configError("--token-file: %w", err)
	}
	if mode := info.Mode(); runtime.GOOS != "windows" && mode.Perm()&0o027 != 0 {
		return "", configError("--token-file is %s, which others may read or write (mode %#o): chmod 600 it", path, mode.Perm())
	}
	text, err := io.ReadAll(io.LimitReader(file, maxToken+1))
	if err != nil {
		return "", configError("--token-file: %w", err)
	}
	token := strings.TrimSpace(string(text))
	switch {
	case token == "":
		return "", configError("--token-file is %s, which is empty: write your token into it", path)
	case len(token) > maxToken || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }):
		return "", configError("--token-file is %s, which has no token: it must be one line of visible ASCII, at most %d bytes",
			path, maxToken)
	}
	return token, nil
}

// ErrConfig is the error of an address or a file that cannot be.
var ErrConfig = errors.New("the settings are wrong")

type wrongConfig struct{ error }

func (wrongConfig) Is(target error) bool   { return target == ErrConfig }
func (w wrongConfig) Unwrap() error        { return w.error }
func configError(f string, a ...any) error { return wrongConfig{fmt.Errorf(f, a...)} }
