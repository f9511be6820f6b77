package controlplane

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

func TestCachedBuildsOnce(t *testing.T) {
	gocache, err := exec.Command("go", "env", "GOCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("GOCACHE", strings.TrimSpace(string(gocache)))
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	hello := artifact{
		name:   "hello",
		source: "../../test/lab/controlplane/testdata/hello",
		args:   func(string) ([]string, error) { return []string{"."}, nil },
	}
	const callers = 4
	var log bytes.Buffer
	shared := Options{Log: &log}.log()
	var dirs [callers]string
	var errs [callers]error
	var callersDone sync.WaitGroup
	for i := range callers {
		callersDone.Go(func() { dirs[i], errs[i] = cached(t.Context(), shared, hello) })
	}
	callersDone.Wait()
	for i := range callers {
		if errs[i] != nil {
			t.Fatal(errs[i])
		}
		if dirs[i] != dirs[0] {
			t.Errorf("got directories %s and %s, want one", dirs[0], dirs[i])
		}
	}
	if got := strings.Count(log.String(), "once ..."); got != 1 {
		t.Errorf("got %d builds, want 1:\n%s", got, log.String())
	}
	output, err := exec.Command(filepath.Join(dirs[0], "hello")).CombinedOutput()
	if err != nil || string(output) != "hello\n" {
		t.Errorf("the built binary prints %q and ends with %v", output, err)
	}
}

func TestBuildErrorShowsCompilerOutput(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	broken := artifact{
		name:   "broken",
		source: "../../test/lab/controlplane/testdata/hello",
		args:   func(string) ([]string, error) { return []string{"./no-such-package"}, nil },
	}
	_, err := cached(t.Context(), new(bytes.Buffer), broken)
	if err == nil || !strings.Contains(err.Error(), "no-such-package") {
		t.Errorf("got error %v, want one with the output of go build", err)
	}
}

func TestAssets(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("KUBEBUILDER_ASSETS", dir)
	if _, err := Binaries(t.Context(), Options{}); err == nil || !strings.Contains(err.Error(), filepath.Join(dir, "etcd")) {
		t.Errorf("got error %v, want one that names the missing etcd", err)
	}
	want := Paths{Etcd: filepath.Join(dir, "etcd"), APIServer: filepath.Join(dir, "kube-apiserver")}
	for _, path := range []string{want.Etcd, want.APIServer} {
		if err := os.WriteFile(path, nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	got, err := Binaries(t.Context(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
