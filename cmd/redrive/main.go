// Command redrive looks at dead letters, and brings them back: see redrive --help.
//
//	go install github.com/watermill-spillway/spillway/cmd/redrive@latest
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/watermill-spillway/spillway/cmd/redrive/internal/command"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := command.Main(ctx, command.Process{Args: os.Args[1:], In: os.Stdin, Out: os.Stdout, Err: os.Stderr})
	stop()
	os.Exit(code)
}
