package controlplane

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/kuberelay/kuberelay/test/lab/childprocess"
)

// An artifact is a directory in the cache that is built from one of the modules in hack/controlplane. Its
// name in the cache contains a hash of everything that determines the build, so an existing directory is
// up to date and never changes.
type artifact struct {
	name   string // used in messages and as the prefix of the directory's name
	source string // the directory of the module, relative to hack/controlplane
	// args returns the arguments of go build, except the output.
	args func(source string) ([]string, error)
	// finish adds files to the directory, which already contains the binary under the artifact's name.
	finish func(ctx context.Context, source, dir string) error
}

// controlPlaneArtifact is a single binary with symbolic links for its three components.
var controlPlaneArtifact = artifact{
	name:   "controlplane",
	source: ".",
	args: func(source string) ([]string, error) {
		version, major, minor, err := kubernetesVersion(source)
		if err != nil {
			return nil, err
		}
		// kubectl needs these values to understand the server's version.
		const pkg = "k8s.io/component-base/version."
		return []string{fmt.Sprintf("-ldflags=-s -w -X %[1]sgitVersion=%[2]s -X %[1]sgitMajor=%[3]s -X %[1]sgitMinor=%[4]s",
			pkg, version, major, minor), "."}, nil
	},
	finish: func(_ context.Context, _, dir string) error {
		var errs []error
		for _, component := range []string{"etcd", "kube-apiserver", "kube-controller-manager"} {
			errs = append(errs, os.Symlink("controlplane", filepath.Join(dir, component)))
		}
		return errors.Join(errs...)
	},
}

// kubernetesVersion returns the Kubernetes version that the module pins, with its major and minor
// numbers.
func kubernetesVersion(module string) (version, major, minor string, err error) {
	file := filepath.Join(module, "go.mod")
	text, err := os.ReadFile(file)
	if err != nil {
		return "", "", "", err
	}
	m := regexp.MustCompile(`(?m)^\s*k8s\.io/kubernetes (v(\d+)\.(\d+)\.\S+)$`).FindStringSubmatch(string(text))
	if m == nil {
		return "", "", "", fmt.Errorf("no version of k8s.io/kubernetes in %s", file)
	}
	return m[1], m[2], m[3], nil
}

// cached returns the artifact's directory in the cache. It builds the artifact if it is missing.
func cached(ctx context.Context, log io.Writer, a artifact) (string, error) {
	source, err := sourceDir()
	if err != nil {
		return "", err
	}
	source = filepath.Join(source, a.source)
	args, err := a.args(source)
	if err != nil {
		return "", err
	}
	key, err := contentHash(ctx, source, args)
	if err != nil {
		return "", err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find a place for the built %s: %w", a.name, err)
	}
	cache = filepath.Join(cache, "kuberelay", "controlplane")
	dir := filepath.Join(cache, a.name+"-"+key)
	if exists(dir) {
		return dir, nil
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	lock, err := childprocess.LockFile(ctx, dir+".lock", log, "builds "+a.name)
	if err != nil {
		return "", fmt.Errorf("wait for %s to be built: %w", a.name, err)
	}
	defer lock.Close()
	if exists(dir) { // another process built it in the meantime
		return dir, nil
	}
	if err := build(ctx, log, a, source, dir, args, lock); err != nil {
		return "", fmt.Errorf("build %s: %w", a.name, err)
	}
	return dir, nil
}

// build builds the artifact next to dir and renames it to dir when it is complete. The go command
// inherits the lock, so an orphaned go command still holds the lock.
func build(ctx context.Context, log io.Writer, a artifact, source, dir string, args []string, lock *os.File) error {
	tmp := dir + ".tmp"
	if err := os.RemoveAll(tmp); err != nil {
		return err
	}
	if err := os.Mkdir(tmp, 0o755); err != nil {
		return err
	}
	cmd := goCommand(ctx, source, append([]string{"build", "-trimpath", "-o", filepath.Join(tmp, a.name)}, args...)...)
	cmd.ExtraFiles = []*os.File{lock}
	if err := childprocess.Run(log, "building "+a.name+" from its Go modules, once", cmd); err != nil {
		return err
	}
	if a.finish != nil {
		if err := a.finish(ctx, source, tmp); err != nil {
			return err
		}
	}
	return os.Rename(tmp, dir)
}

// goCommand returns a go command that runs in source and builds for this machine. It overrides GOFLAGS,
// GOWORK, CGO_ENABLED, GOOS and GOARCH in the caller's environment.
func goCommand(ctx context.Context, source string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = source
	cmd.Env = append(os.Environ(), "GOFLAGS=-buildvcs=false", "GOWORK=off", "CGO_ENABLED=0",
		"GOOS="+runtime.GOOS, "GOARCH="+runtime.GOARCH)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) } // lets it clean up
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

// contentHash returns a hash of everything that determines the result of a build in source.
func contentHash(ctx context.Context, source string, args []string) (string, error) {
	goVersion, err := goCommand(ctx, source, "env", "GOVERSION").Output()
	if err != nil {
		return "", fmt.Errorf("building the control plane needs the go command, or set KUBEBUILDER_ASSETS: %w", err)
	}
	files, err := filepath.Glob(filepath.Join(source, "*.go"))
	if err != nil {
		return "", err
	}
	files = append(files, filepath.Join(source, "go.mod"), filepath.Join(source, "go.sum"))
	hash := sha256.New()
	fmt.Fprintf(hash, "%s %s %s %q\n", bytes.TrimSpace(goVersion), runtime.GOOS, runtime.GOARCH, args)
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(hash, "%s %d\n%s", filepath.Base(file), len(content), content)
	}
	return hex.EncodeToString(hash.Sum(nil)[:8]), nil
}

// sourceDir returns the path of hack/controlplane. It searches at and above the working directory, for
// tests and go run, and then above this package's source, for debuggers.
func sourceDir() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	starts := []string{dir}
	if _, file, _, ok := runtime.Caller(0); ok && filepath.IsAbs(file) { // not with -trimpath
		starts = append(starts, filepath.Dir(file))
	}
	for _, start := range starts {
		for dir := start; ; dir = filepath.Dir(dir) {
			source := filepath.Join(dir, "hack", "controlplane")
			if exists(filepath.Join(source, "go.mod")) {
				return source, nil
			}
			if dir == filepath.Dir(dir) {
				break
			}
		}
	}
	return "", fmt.Errorf("no hack/controlplane at or above %s: run inside kuberelay's source, or set KUBEBUILDER_ASSETS",
		strings.Join(starts, " or "))
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist)
}
