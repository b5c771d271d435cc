package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

// tagged are the folders of the modules that are tagged, and the examples, which are not: the lab imports them.
var tagged = []string{".", "cmd/redrive", "observe/prom", "observe/telemetry", "examples"}

func write(tree, out, version string) error {
	if out == "" {
		return errors.New("-out: no folder: name one")
	}
	if err := os.RemoveAll(out); err != nil {
		return err
	}
	for _, folder := range tagged {
		if err := writeModule(filepath.Join(tree, folder), out, version); err != nil {
			return fmt.Errorf("%s: %w", folder, err)
		}
	}
	return nil
}

func writeModule(folder, out, version string) error {
	text, err := os.ReadFile(filepath.Join(folder, "go.mod"))
	if err != nil {
		return err
	}
	parsed, err := modfile.Parse("go.mod", text, nil)
	if err != nil {
		return err
	}
	if len(parsed.Replace) > 0 {
		return errors.New("go.mod has a replace, which go install refuses: write it into go.work")
	}
	m := module.Version{Path: parsed.Module.Mod.Path, Version: version}
	escaped, err := module.EscapePath(m.Path)
	if err != nil {
		return err
	}
	at := filepath.Join(out, filepath.FromSlash(escaped), "@v")
	if err := os.MkdirAll(at, 0o755); err != nil {
		return err
	}
	info := fmt.Sprintf(`{"Version":%q,"Time":%q}`, version, time.Now().UTC().Format(time.RFC3339))
	for name, content := range map[string]string{"list": version + "\n", version + ".info": info,
		version + ".mod": string(text)} {
		if err := os.WriteFile(filepath.Join(at, name), []byte(content), 0o644); err != nil {
			return err
		}
	}
	file, err := os.Create(filepath.Join(at, version+".zip"))
	if err != nil {
		return err
	}
	return errors.Join(zip.CreateFromDir(file, m, folder), file.Close())
}
