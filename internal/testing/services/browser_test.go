package services

import (
	"os"
	"strings"
	"testing"
)

// browser.sh and this package name the same version of axe-core.
func TestAxeVersion(t *testing.T) {
	script, err := os.ReadFile("browser.sh")
	if err != nil || !strings.Contains(string(script), "\naxe_version="+axeVersion+"\n") {
		t.Errorf("browser.sh fetches another version than %s, %v", axeVersion, err)
	}
}
