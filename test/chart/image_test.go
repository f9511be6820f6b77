//go:build tools

package chart

import (
	"bytes"
	"debug/buildinfo"
	"debug/elf"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Size limits of the image in bytes: unpacked, and compressed as in a registry.
const (
	maxImage      = 50_000_000
	maxCompressed = 19_000_000
)

// TestImage builds the image with buildah, using the Makefile and a base image that contains this
// machine's tools. Then it runs the binary from the image.
func TestImage(t *testing.T) {
	if _, err := exec.LookPath("buildah"); err != nil {
		t.Fatal("the image cannot be built: there is no buildah here (Debian: apt-get install buildah)")
	}
	b := newBuilder(t)
	b.base()
	head := b.must("git", "-C", root, "rev-parse", "HEAD")
	for _, tag := range []string{"again", "test"} {
		b.must("make", "-C", root, "image", "IMAGE=localhost/kuberelay", "IMAGE_TAG="+tag, "VERSION=v0.0.1-test", "COMMIT="+head,
			"BUILDAH_FLAGS="+strings.Join(b.flags, " "), "IMAGE_FLAGS=--isolation chroot --no-cache --build-arg GO_IMAGE=localhost/base "+
				"--build-arg GOPROXY=off "+strings.Join(b.mounts, " "))
	}
	id := func(tag string) string {
		return b.buildah("inspect", "--type", "image", "--format", "{{.FromImageID}}", "localhost/kuberelay:"+tag)
	}
	if first, second := id("again"), id("test"); first != second || first == "" {
		t.Errorf("two builds differ: %q and %q", first, second)
	}

	var image struct {
		OCIv1 struct {
			Config struct {
				User       string
				Entrypoint []string
				Labels     map[string]string
			} `json:"config"`
		}
	}
	if err := json.Unmarshal([]byte(b.buildah("inspect", "--type", "image", "localhost/kuberelay:test")), &image); err != nil {
		t.Fatal(err)
	}
	c := image.OCIv1.Config
	if c.User != "65532:65532" || !slices.Equal(c.Entrypoint, []string{"/forwarder"}) {
		t.Errorf("user %q, entrypoint %q", c.User, c.Entrypoint)
	}
	for name, want := range map[string]string{
		"version": "v0.0.1-test", "revision": head, "licenses": "Apache-2.0", "title": "kuberelay",
		"source": "https://github.com/kuberelay/kuberelay",
	} {
		if got := c.Labels["org.opencontainers.image."+name]; got != want {
			t.Errorf("label %s: got %q, want %q", name, got, want)
		}
	}

	container := b.buildah("from", "--pull-never", "localhost/kuberelay:test")
	if got, want := b.buildah("run", "--isolation", "chroot", container, "--", "/forwarder", "version"), "forwarder v0.0.1-test (commit "+head; !strings.HasPrefix(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	mounted := b.buildah("mount", container)
	checkFiles(t, mounted)
	checkBinary(t, filepath.Join(mounted, "forwarder"), head)

	layout := filepath.Join(t.TempDir(), "layout")
	b.buildah("push", "localhost/kuberelay:test", "oci:"+layout+":test")
	_, compressed := files(t, layout)
	t.Logf("compressed: %.1f MB", float64(compressed)/1e6)
	if compressed > maxCompressed {
		t.Errorf("a registry stores %d bytes of the image, more than %d", compressed, maxCompressed)
	}
}

// checkFiles verifies that the image contains only the binary and the certificates, and that it is
// small.
func checkFiles(t *testing.T, mounted string) {
	t.Helper()
	names, size := files(t, mounted)
	want := []string{"etc/ssl/certs/ca-certificates.crt", "forwarder"}
	// buildah leaves these files in a container where a command ran.
	names = slices.DeleteFunc(names, func(s string) bool {
		return s == "etc/hosts" || s == "etc/hostname" || s == "etc/resolv.conf" || s == "run/.containerenv"
	})
	if !slices.Equal(names, want) {
		t.Errorf("the image has %v, want %v", names, want)
	}
	t.Logf("unpacked: %.1f MB", float64(size)/1e6)
	if size > maxImage {
		t.Errorf("the image has %d bytes, more than %d", size, maxImage)
	}
}

// checkBinary verifies that the binary is static, was built from this commit, and doesn't contain
// paths of the build machine.
func checkBinary(t *testing.T, file, head string) {
	t.Helper()
	info, err := buildinfo.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	for name, want := range map[string]string{"CGO_ENABLED": "0", "-trimpath": "true", "vcs.revision": head} {
		if settings[name] != want {
			t.Errorf("built with %s=%q, want %q", name, settings[name], want)
		}
	}
	e, err := elf.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	for _, p := range e.Progs {
		if p.Type == elf.PT_INTERP {
			t.Error("the binary is not static")
		}
	}
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(content, []byte("/src/cmd/forwarder")) {
		t.Error("the binary has paths of the machine that built it")
	}
}

// files returns the names of all files in a directory and their total size.
func files(t *testing.T, dir string) (names []string, size int64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		names, size = append(names, name), size+info.Size()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names, size
}

// builder runs buildah with its own storage.
type builder struct {
	t      *testing.T
	dir    string
	flags  []string // for buildah
	mounts []string // build flags that mount this machine's tools into the base
}

func newBuilder(t *testing.T) *builder {
	dir, err := os.MkdirTemp("", "kuberelay-image-") //nolint:usetesting // it can have files of other users, which TempDir can't remove
	if err != nil {
		t.Fatal(err)
	}
	b := &builder{t: t, dir: dir}
	b.flags = []string{"--storage-driver", "vfs", "--root", filepath.Join(dir, "storage"), "--runroot", filepath.Join(dir, "run")}
	t.Cleanup(func() {
		b.command(t, "buildah", append(b.flags, "umount", "--all")...)
		b.command(t, "buildah", append(b.flags, "rm", "--all")...)
		if err := os.RemoveAll(dir); err != nil {
			b.command(t, "buildah", "unshare", "rm", "-rf", dir) // removes other users' files, if this isn't root
		}
	})
	return b
}

// base makes the image in which the binary is built. This machine's tool directories are mounted into
// the image only during a build.
func (b *builder) base() {
	b.t.Helper()
	rootfs := filepath.Join(b.dir, "base")
	certificates, err := os.ReadFile("/etc/ssl/certs/ca-certificates.crt")
	if err != nil {
		b.t.Fatalf("the image cannot be built: this machine has no certificate authorities to put into it: %v", err)
	}
	for _, dir := range []string{"usr", "tmp", "root", "proc", "sys", "dev", "var/tmp", "goroot", "gomodcache", "gocache", "etc/ssl/certs"} {
		if err := os.MkdirAll(filepath.Join(rootfs, dir), 0o755); err != nil {
			b.t.Fatal(err)
		}
	}
	b.write(filepath.Join(rootfs, "etc", "ssl", "certs", "ca-certificates.crt"), string(certificates))
	b.mount("/usr", "/usr", ":ro")
	for _, dir := range []string{"bin", "sbin", "lib", "lib64"} {
		if to, err := os.Readlink("/" + dir); err == nil {
			if err := os.Symlink(to, filepath.Join(rootfs, dir)); err != nil {
				b.t.Fatal(err)
			}
		} else if _, err := os.Stat("/" + dir); err == nil {
			b.mount("/"+dir, "/"+dir, ":ro")
		}
	}
	for variable, dir := range map[string]string{"GOROOT": "/goroot", "GOMODCACHE": "/gomodcache", "GOCACHE": "/gocache"} {
		b.mount(b.must("go", "env", variable), dir, "")
	}
	containerfile := filepath.Join(b.dir, "Containerfile")
	b.write(containerfile, "FROM scratch\nCOPY . /\n"+
		"ENV PATH=/goroot/bin:/usr/bin:/bin HOME=/root GOROOT=/goroot GOMODCACHE=/gomodcache GOCACHE=/gocache GOTOOLCHAIN=local\n")
	b.buildah("build", "--isolation", "chroot", "--file", containerfile, "--tag", "localhost/base", rootfs)
}

func (b *builder) mount(from, to, mode string) {
	b.mounts = append(b.mounts, "--volume", fmt.Sprintf("%s:%s%s", from, to, mode))
}

func (b *builder) write(file, text string) {
	b.t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		b.t.Fatal(err)
	}
}

func (b *builder) buildah(args ...string) string {
	b.t.Helper()
	return b.must("buildah", slices.Concat(b.flags, args)...)
}

// must runs a command that must succeed and returns its output.
func (b *builder) must(name string, args ...string) string {
	b.t.Helper()
	out, stderr, err := run(b.t.Context(), "", name, args...)
	if err != nil {
		b.t.Fatalf("%s %v: %v\n%s%s", name, args, err, out, stderr)
	}
	return strings.TrimSpace(out)
}

// command runs a command that may fail. It also works after the end of the test.
func (b *builder) command(t *testing.T, name string, args ...string) {
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Logf("%s %v: %v\n%s", name, args, err, out)
	}
}

// TestImageWithoutTools verifies that make names the missing tools if no build tool is installed.
func TestImageWithoutTools(t *testing.T) {
	path, err := exec.LookPath("make")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, "-C", root, "image")
	cmd.Env = []string{"PATH=" + t.TempDir(), "HOME=" + t.TempDir()}
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "make image needs buildah, podman or docker") {
		t.Errorf("got %v\n%s", err, out)
	}
}
