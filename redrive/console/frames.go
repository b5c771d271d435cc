package console

import (
	"strings"
)

// frame is one call.
type frame struct {
	// Call is the function with its arguments, as Go prints it.
	Call string
	// Place is the file and the line.
	Place string
	// Own reports whether the frame is the application's.
	Own bool
}

// frameGroup is some frames in a row that are all the application's, or all not.
type frameGroup struct {
	Own    bool
	Frames []frame
}

// maxFrames bounds what is looked at of a stack.
const maxFrames = 500

// foldStack returns the frames of a stack in groups, so that a person sees first the frames of the application, which
// the cause is in. A stack is as Go prints it: two lines a frame, innermost first. Of a hundred frames most are those of
// the Go runtime, of the standard library and of modules. It returns nothing for a text that is no stack of Go.
func foldStack(stack string) (groups []frameGroup) {
	lines := strings.Split(strings.TrimRight(stack, "\n"), "\n")
	n := 0
	for i := 0; i < len(lines) && n < maxFrames; n++ {
		f := frame{Call: strings.TrimSpace(lines[i])}
		if i++; i < len(lines) && strings.HasPrefix(lines[i], "\t") {
			f.Place = placeOf(lines[i])
			i++
		}
		if f.Call == "" || strings.HasPrefix(f.Call, "goroutine ") && f.Place == "" {
			continue
		}
		if f.Place == "" && n == 0 {
			return nil
		}
		f.Own = f.isOwn()
		if last := len(groups) - 1; last < 0 || groups[last].Own != f.Own {
			groups = append(groups, frameGroup{Own: f.Own})
		}
		g := &groups[len(groups)-1]
		g.Frames = append(g.Frames, f)
	}
	return groups
}

// placeOf drops the offset that Go prints behind the line.
func placeOf(line string) string {
	place, _, _ := strings.Cut(strings.TrimSpace(line), " +0x")
	return place
}

// libraries are modules that are never the application, also where they are built from their own source.
var libraries = []string{"github.com/watermill-spillway/spillway/", "github.com/watermill-spillway/spillway.",
	"github.com/ThreeDotsLabs/watermill"}

// isOwn reports whether the frame is of neither the standard library nor a module. A module's file has its version in
// the path, and a file of the standard library is below a folder src of Go's, or with -trimpath in the folder of its
// package.
func (f *frame) isOwn() bool {
	call := strings.TrimPrefix(f.Call, "created by ")
	for _, library := range libraries {
		if strings.HasPrefix(call, library) {
			return strings.HasPrefix(call, "github.com/watermill-spillway/spillway/examples/")
		}
	}
	if strings.Contains(f.Place, "@v") || strings.Contains(f.Place, "/vendor/") || strings.HasPrefix(call, "panic(") {
		return false
	}
	first, _, _ := strings.Cut(call, "/")
	if first == call { // such as net.Dial
		first, _, _ = strings.Cut(call, ".")
	}
	if strings.HasPrefix(f.Place, first+"/") && !strings.Contains(first, ".") && standard[first] {
		return false
	}
	return !standard[first] || !strings.Contains(f.Place, "/src/"+first+"/")
}

// standard are the first parts of the packages of the standard library.
var standard = map[string]bool{}

func init() {
	for _, name := range strings.Fields(`archive bufio bytes cmp compress container context crypto database debug embed encoding errors expvar
		flag fmt go hash html image index internal io iter log maps math mime net os path plugin reflect regexp runtime slices sort strconv strings
		structs sync syscall testing text time unicode unique unsafe weak vendor`) {
		standard[name] = true
	}
}
