// Command site checks the pages that "make site" built: each link and picture within the site leads to a file, and each
// anchor to an element. It asks no other site.
package main

import (
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path"
	"regexp"
	"slices"
)

var (
	ids   = regexp.MustCompile(` id="([^"]+)"`)
	links = regexp.MustCompile(` (?:href|src)="([^"]+)"`)
)

// page is a page of the site, or a file beside the pages.
type page struct {
	ids   []string
	links []string
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "site: name the folder of the site: site dist/site")
		os.Exit(2)
	}
	files, err := read(os.DirFS(os.Args[1]))
	if err != nil {
		fmt.Fprintln(os.Stderr, "site:", err)
		os.Exit(1)
	}
	wrong := check(files)
	for _, line := range wrong {
		fmt.Fprintln(os.Stderr, "site:", line)
	}
	if len(wrong) > 0 || len(files) == 0 {
		os.Exit(1)
	}
	fmt.Printf("site: %d files in %s, and every link within it leads somewhere; open %s\n", len(files), os.Args[1],
		path.Join(os.Args[1], "index.html"))
}

// read returns all files, by their paths.
func read(folder fs.FS) (map[string]page, error) {
	files := map[string]page{}
	return files, fs.WalkDir(folder, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		var p page
		if path.Ext(name) == ".html" {
			text, err := fs.ReadFile(folder, name)
			if err != nil {
				return err
			}
			p = page{ids: found(ids, text), links: found(links, text)}
		}
		files[name] = p
		return nil
	})
}

func found(expression *regexp.Regexp, text []byte) (all []string) {
	for _, match := range expression.FindAllSubmatch(text, -1) {
		all = append(all, string(match[1]))
	}
	return all
}

// check returns a line for each link that leads nowhere.
func check(files map[string]page) (wrong []string) {
	for name, from := range files {
		for _, link := range from.links {
			to, err := url.Parse(link)
			if err != nil {
				wrong = append(wrong, fmt.Sprintf("%s: the link %q cannot be read: %v", name, link, err))
				continue
			}
			if to.Scheme != "" {
				continue
			}
			at := name
			if to.Path != "" {
				at = path.Join(path.Dir(name), to.Path)
			}
			if target, is := files[at]; !is {
				wrong = append(wrong, fmt.Sprintf("%s: the link %q leads to no file: correct the page it is made of", name, link))
			} else if to.Fragment != "" && !slices.Contains(target.ids, to.Fragment) {
				wrong = append(wrong, fmt.Sprintf("%s: the link %q leads to no section: correct its anchor", name, link))
			}
		}
	}
	slices.Sort(wrong)
	return slices.Compact(wrong)
}
