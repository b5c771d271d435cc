// Package licences_test holds the licences of all modules that a program of users compiles to a list.
package licences_test

import (
	"flag"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write docs/licences.md")

// allowed are licences that ask for no more than their text, and that of the module, and how each is recognised.
var allowed = map[string]string{
	"MIT":        "Permission is hereby granted, free of charge",
	"BSD":        "Redistribution and use in source and binary forms",
	"Apache-2.0": "Apache License Version 2.0",
	"ISC":        "Permission to use, copy, modify, and/or distribute this software for any purpose",
	"MPL-2.0":    "Mozilla Public License Version 2.0", // for changes of its own files; nothing here changes them
}

// refused are those that can stand beside an allowed one.
var refused = []string{"GNU GENERAL PUBLIC", "GNU AFFERO", "GNU LESSER", "Server Side Public", "Business Source"}

// Each module that the library, the command, prom or telemetry compile has an allowed licence, and is listed.
func TestLicences(t *testing.T) {
	args := []string{"list", "-deps", "-f", "{{with .Module}}{{if not .Main}}{{.Path}} {{.Dir}}{{end}}{{end}}", "./...",
		"./cmd/redrive/...", "./observe/prom/...", "./observe/telemetry/..."}
	list := exec.Command("go", args...)
	list.Dir = "../../.."
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	modules := strings.Split(strings.TrimSpace(string(out)), "\n")
	slices.Sort(modules)
	page := "# Licences\n\nFor those who must know what they compile: each module that Spillway needs outside of its tests, and its licence. An\n" +
		"allow-list decides: `go test ./lab/proofs/licences -update` writes this page.\n"
	under := map[string]string{}
	for _, module := range slices.Compact(modules) {
		path, dir, _ := strings.Cut(module, " ")
		if dir == "" {
			continue
		}
		names := licencesIn(t, dir)
		if len(names) == 0 {
			t.Errorf("%s: no licence that is known is in %s: look at it, and add it to allowed, or leave the module out", path, dir)
		}
		under[strings.Join(names, ", ")] += "- " + path + "\n"
	}
	for _, names := range slices.Sorted(maps.Keys(under)) {
		page += "\n## " + names + "\n\n" + under[names]
	}
	const file = "../../../docs/licences.md"
	if *update {
		if err := os.WriteFile(file, []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if is, err := os.ReadFile(file); err != nil || string(is) != page {
		t.Errorf("docs/licences.md is not of these modules (%v): run go test ./lab/proofs/licences -update", err)
	}
}

// licencesIn returns the allowed licences of a module, and none if it has another one too.
func licencesIn(t *testing.T, dir string) []string {
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, file := range files {
		if name := strings.ToUpper(filepath.Base(file)); !strings.HasPrefix(name, "LICEN") && !strings.HasPrefix(name, "COPYING") {
			continue
		}
		raw, err := os.ReadFile(file)
		if err != nil {
			continue // a folder of them
		}
		text := string(raw)
		for _, other := range refused { // MPL-2.0 names GNU's as secondary licences
			if contains(text, other) && !contains(text, allowed["MPL-2.0"]) {
				return nil
			}
		}
		for name, says := range allowed {
			if contains(text, says) && !slices.Contains(found, name) {
				found = append(found, name)
			}
		}
	}
	slices.Sort(found)
	return found
}

// contains compares words in any case, without commas.
func contains(text, says string) bool {
	plain := func(s string) string {
		return strings.Join(strings.Fields(strings.ToLower(strings.ReplaceAll(s, ",", " "))), " ")
	}
	return strings.Contains(plain(text), plain(says))
}
