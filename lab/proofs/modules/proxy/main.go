// Command proxy makes a file-system GOPROXY of the tree: each module that is tagged, as users would get it.
//
//	go run ./lab/proofs/modules/proxy -out /tmp/proxy
//	GOPROXY=file:///tmp/proxy,https://proxy.golang.org GOSUMDB=off go install github.com/watermill-spillway/spillway/cmd/redrive@v0.1.0
package main

import (
	"flag"
	"fmt"
	"os"
)

func main() {
	tree := flag.String("tree", ".", "the root of the repository")
	out := flag.String("out", "", "the folder of the proxy, which is made anew")
	version := flag.String("version", "v0.1.0", "the version of all modules")
	flag.Parse()
	if err := write(*tree, *out, *version); err != nil {
		fmt.Fprintln(os.Stderr, "proxy:", err)
		os.Exit(1)
	}
}
