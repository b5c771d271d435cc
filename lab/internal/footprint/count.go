package footprint

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

// Count is what the process has at one moment.
type Count struct {
	// Sockets are established TCP connections to the server.
	Sockets int
	// Goroutines are by the function that started them.
	Goroutines map[string]int
}

// Take counts the goroutines, and the connections to one of the addresses.
func Take(addresses ...string) (Count, error) {
	sockets, err := sockets(addresses)
	return Count{Sockets: sockets, Goroutines: goroutines()}, err
}

// Total is the number of all goroutines.
func (c Count) Total() (n int) {
	for _, each := range c.Goroutines {
		n += each
	}
	return n
}

// Minus returns what c has more than before.
func (c Count) Minus(before Count) Count {
	more := Count{c.Sockets - before.Sockets, maps.Clone(c.Goroutines)}
	for who, n := range before.Goroutines {
		if more.Goroutines[who] -= n; more.Goroutines[who] == 0 {
			delete(more.Goroutines, who)
		}
	}
	return more
}

// String is a table, the greatest numbers first.
func (c Count) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%5d sockets\n%5d goroutines\n", c.Sockets, c.Total())
	who := slices.SortedFunc(maps.Keys(c.Goroutines), func(a, b string) int {
		if c.Goroutines[a] != c.Goroutines[b] {
			return c.Goroutines[b] - c.Goroutines[a]
		}
		return strings.Compare(a, b)
	})
	for _, w := range who {
		fmt.Fprintf(&b, "%5d   %s\n", c.Goroutines[w], w)
	}
	return b.String()
}

// goroutines groups all of them by their creator.
func goroutines() map[string]int {
	stacks := make([]byte, 1<<20)
	for {
		n := runtime.Stack(stacks, true)
		if n < len(stacks) {
			stacks = stacks[:n]
			break
		}
		stacks = make([]byte, 2*len(stacks))
	}
	by := map[string]int{}
	for stack := range strings.SplitSeq(string(stacks), "\n\n") {
		who := "main"
		if _, creator, found := strings.Cut(stack, "created by "); found {
			who, _, _ = strings.Cut(creator, "\n")
			who, _, _ = strings.Cut(who, " in goroutine")
			who = who[strings.LastIndex(who, "/")+1:]
		}
		if strings.HasPrefix(who, "sync.(*WaitGroup).Go") { // look at what it runs
			lines := strings.Split(stack, "\n")
			for i, line := range lines {
				if strings.HasPrefix(line, "sync.(*WaitGroup).Go.func1") && i >= 2 {
					who, _, _ = strings.Cut(lines[i-2], "(0x")
					who = who[strings.LastIndex(who, "/")+1:]
				}
			}
		}
		by[who]++
	}
	return by
}

// sockets counts this process's established connections to the addresses.
func sockets(addresses []string) (n int, err error) {
	own, err := inodes()
	if err != nil {
		return 0, err
	}
	ports := map[int64]bool{}
	for _, address := range addresses {
		_, port, err := net.SplitHostPort(address)
		if err != nil {
			return 0, err
		}
		number, err := strconv.ParseInt(port, 10, 32)
		if err != nil {
			return 0, err
		}
		ports[number] = true
	}
	for _, table := range []string{"/proc/self/net/tcp", "/proc/self/net/tcp6"} {
		file, err := os.Open(table)
		if os.IsNotExist(err) {
			continue
		}
		if err != nil {
			return 0, err
		}
		for lines := bufio.NewScanner(file); lines.Scan(); {
			// sl local_address rem_address st tx:rx tr:tm retrnsmt uid timeout inode
			fields := strings.Fields(lines.Text())
			if len(fields) < 10 || fields[3] != "01" || !own[fields[9]] {
				continue
			}
			_, port, _ := strings.Cut(fields[2], ":")
			if raw, err := hex.DecodeString(port); err == nil && len(raw) == 2 &&
				ports[int64(raw[0])<<8|int64(raw[1])] {
				n++
			}
		}
		if err := file.Close(); err != nil {
			return 0, err
		}
	}
	return n, nil
}

// inodes are those of this process's sockets.
func inodes() (map[string]bool, error) {
	files, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		return nil, err
	}
	own := map[string]bool{}
	for _, file := range files {
		target, err := os.Readlink(file)
		if inode, ok := strings.CutPrefix(target, "socket:["); err == nil && ok {
			own[strings.TrimSuffix(inode, "]")] = true
		}
	}
	return own, nil
}
