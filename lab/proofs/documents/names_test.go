package documents_test

import (
	"go/types"
	"regexp"
	"strings"
	"testing"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

var (
	span = regexp.MustCompile("`([^`\n]+)`")
	name = regexp.MustCompile(`(?:\b([a-z]+)\.)?\b([A-Z]\w*)(?:\.([A-Z]\w*))?`)
)

// The exported names that Markdown cites, as `poison.QueueConfig.Node` or `QueueConfig.Node`, exist.
func TestNamesInMarkdownExist(t *testing.T) {
	imports := exported()
	packages := map[string]*types.Package{}
	for short, path := range packagesOfDocs {
		found := testkit.Must(imports.Import(path))
		packages[short] = found
	}
	has := func(in *types.Package, typed, member string) bool {
		object := in.Scope().Lookup(typed)
		if object == nil || member == "" {
			return object != nil
		}
		found, _, _ := types.LookupFieldOrMethod(object.Type(), true, in, member)
		return found != nil
	}
	tree(t, ".md", func(path, text string) {
		if path == "CHANGELOG.md" || madeFromCode[path] { // of their time
			return
		}
		for i, line := range strings.Split(fence.ReplaceAllStringFunc(text, func(code string) string { return strings.Repeat("\n", strings.Count(code, "\n")) }), "\n") {
			for _, code := range span.FindAllStringSubmatch(line, -1) {
				for _, cited := range name.FindAllStringSubmatch(code[1], -1) {
					short, typed, member := cited[1], cited[2], cited[3]
					if in, ok := packages[short]; ok {
						if !has(in, typed, member) {
							t.Errorf("%s:%d: %s does not exist", path, i+1, cited[0])
						}
					} else if short == "" && strings.HasSuffix(typed, "Config") && typed != "XConfig" && !inOne(packages, has, typed, member) {
						t.Errorf("%s:%d: no package has %s", path, i+1, cited[0])
					}
				}
			}
		}
	})
}

func inOne(packages map[string]*types.Package, has func(*types.Package, string, string) bool, typed, member string) bool {
	for _, in := range packages {
		if has(in, typed, member) {
			return true
		}
	}
	return false
}
