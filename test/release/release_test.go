// Package release tests "make release" the way a maintainer runs it, in a fresh clone.
package release

import (
	"archive/tar"
	"compress/gzip"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const (
	root    = "../.."
	version = "v0.0.1-test"
	binary  = "forwarder-" + version + "-linux-amd64"
)

// clone clones the current commit into its own directory.
func clone(t *testing.T) string {
	t.Helper()
	directory := filepath.Join(t.TempDir(), "kuberelay")
	source, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("git", "clone", "--quiet", source, directory).CombinedOutput(); err != nil {
		t.Fatalf("git clone: %v\n%s", err, out)
	}
	return directory
}

func makeRelease(directory string, variables ...string) (string, error) {
	out, err := exec.Command("make", append([]string{"-C", directory, "release", "ARCHES=amd64"}, variables...)...).CombinedOutput()
	return string(out), err
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	content, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// TestRelease_Slow verifies that two builds in different directories produce the same release.
func TestRelease_Slow(t *testing.T) {
	var lists []string
	var dist string
	for range 2 {
		directory := clone(t)
		if out, err := makeRelease(directory, "VERSION="+version); err != nil {
			t.Fatalf("make release: %v\n%s", err, out)
		}
		dist = filepath.Join(directory, "dist")
		lists = append(lists, string(read(t, filepath.Join(dist, "SHA256SUMS"))))
	}
	if lists[0] != lists[1] {
		t.Errorf("built twice, the files differ:\n%s\n%s", lists[0], lists[1])
	}
	names := map[string]bool{binary: false, binary + ".cdx.json": false, "kuberelay-0.0.1-test.tgz": false}
	for line := range strings.Lines(lists[1]) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		if _, expected := names[name]; !expected {
			t.Errorf("SHA256SUMS lists %q", name)
		}
		names[name] = true
		if got := fmt.Sprintf("%x", sha256.Sum256(read(t, filepath.Join(dist, name)))); got != sum {
			t.Errorf("%s: SHA256SUMS has %s, the file has %s", name, sum, got)
		}
	}
	for name, listed := range names {
		if !listed {
			t.Errorf("SHA256SUMS doesn't list %s", name)
		}
	}
	checkBinary(t, filepath.Join(dist, binary))
	checkChart(t, filepath.Join(dist, "kuberelay-0.0.1-test.tgz"))
}

// checkBinary compares the SBOM with the modules in the binary.
func checkBinary(t *testing.T, file string) {
	t.Helper()
	info, err := buildinfo.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var bom struct {
		BOMFormat  string
		Components []struct{ Name, Version, PURL string }
	}
	if err := json.Unmarshal(read(t, file+".cdx.json"), &bom); err != nil {
		t.Fatal(err)
	}
	versions := map[string]string{}
	for _, c := range bom.Components {
		versions[c.Name] = c.Version
		if !strings.HasPrefix(c.PURL, "pkg:golang/") {
			t.Errorf("%s has the package URL %q", c.Name, c.PURL)
		}
	}
	if bom.BOMFormat != "CycloneDX" || len(info.Deps) == 0 || len(versions) != len(info.Deps) {
		t.Errorf("format %q, %d components of %d modules", bom.BOMFormat, len(versions), len(info.Deps))
	}
	for _, module := range info.Deps {
		if module.Replace != nil {
			module = module.Replace
		}
		if versions[module.Path] != module.Version {
			t.Errorf("%s: the SBOM has %q, the binary has %q", module.Path, versions[module.Path], module.Version)
		}
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.modified" && s.Value != "false" {
			t.Error("the binary is of a modified work tree")
		}
	}
}

func checkChart(t *testing.T, file string) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	unzipped, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	archive := tar.NewReader(unzipped)
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			t.Fatal("the archive has no Chart.yaml")
		}
		if err != nil {
			t.Fatal(err)
		}
		if header.Name != "kuberelay/Chart.yaml" {
			continue
		}
		content, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range []string{"version: 0.0.1-test\n", "appVersion: 0.0.1-test\n"} {
			if !strings.Contains("\n"+string(content), "\n"+line) {
				t.Errorf("Chart.yaml has no line %q:\n%s", line, content)
			}
		}
		return
	}
}

func TestReleaseIsRefused(t *testing.T) {
	directory := clone(t)
	for _, v := range []string{"", "1.2.3", "v1.2", "v1.2.3+dirty", "abc123"} {
		out, err := makeRelease(directory, "VERSION="+v)
		if want := fmt.Sprintf("VERSION is '%s', and a release needs a semantic version", v); err == nil || !strings.Contains(out, want) {
			t.Errorf("VERSION=%q: got %v and %q", v, err, out)
		}
	}
	if err := os.WriteFile(filepath.Join(directory, "stray"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := makeRelease(directory, "VERSION="+version); err == nil || !strings.Contains(out, "changes that are not committed") {
		t.Errorf("a modified work tree: got %v and %q", err, out)
	}
	if _, err := os.Stat(filepath.Join(directory, "dist")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a refused release left its directory: %v", err)
	}
}
