package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
)

// generator makes a client of an OpenAPI document. No module of the project requires it.
const generator = "github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen@v2.8.2"

//go:embed generated.txt
var program []byte

// byGenerated generates a client of the API's own document, in a module of its own, and runs a program with it.
func byGenerated(ctx context.Context, url string) (err error) {
	folder, err := os.MkdirTemp("", "spillway-api-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	base := url + "/deadletters/api/v1"
	answer, err := http.Get(base + "/openapi.json")
	if err != nil {
		return err
	}
	document, err := io.ReadAll(answer.Body)
	if err = errors.Join(err, answer.Body.Close(), os.Mkdir(filepath.Join(folder, "client"), 0o700)); err != nil {
		return err
	}
	for name, text := range map[string][]byte{"openapi.json": document, "main.go": program,
		"go.mod": []byte("module generated\n\ngo 1.25\n")} {
		if err := os.WriteFile(filepath.Join(folder, name), text, 0o600); err != nil {
			return err
		}
	}
	for _, args := range [][]string{
		{"run", generator, "-package", "client", "-generate", "types,client", "-o", "client/client.go", "openapi.json"},
		{"mod", "tidy"}, {"run", ".", base, "token-ann"},
	} {
		cmd := exec.CommandContext(ctx, "go", args...)
		cmd.Dir, cmd.Stdout, cmd.Stderr = folder, os.Stdout, os.Stderr
		cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod")
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("go %s: %w", args[0], err)
		}
	}
	return nil
}
