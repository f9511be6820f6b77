// Package controlplanetest provides real control planes for tests. All tests of a package can share one
// control plane, which starts with the first test that needs it:
//
//	var cluster = controlplanetest.Shared{}
//
//	func TestMain(m *testing.M) { os.Exit(cluster.Run(m)) }
//
//	func TestWatch(t *testing.T) {
//		cp := cluster.ControlPlane(t)
//		namespace := controlplanetest.Namespace(t, cp)
//		...
//	}
//
// A test that kills or restores parts of a control plane starts its own one with [New].
//
// A failed test prints the last lines of the components' logs.
package controlplanetest

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kuberelay/kuberelay/test/lab/controlplane"
)

const (
	logLines       = 30
	cleanupTimeout = 30 * time.Second
)

// Shared is a control plane that the tests of one package share. Its zero value is ready to use.
// Set its options before the first use.
type Shared struct {
	Options controlplane.Options

	once sync.Once
	cp   *controlplane.ControlPlane
	err  error
}

// Run runs the tests, stops the control plane if a test started it, and returns the exit code.
func (s *Shared) Run(m *testing.M) int {
	code := m.Run()
	if s.cp == nil {
		return code
	}
	if err := s.cp.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return max(code, 1)
	}
	return code
}

// ControlPlane returns the shared control plane. The first call starts it. The package's TestMain must
// call Run.
func (s *Shared) ControlPlane(t testing.TB) *controlplane.ControlPlane {
	t.Helper()
	s.once.Do(func() { s.cp, s.err = controlplane.Start(context.Background(), s.Options) })
	if s.err != nil {
		t.Fatal(s.err)
	}
	showLogs(t, s.cp)
	return s.cp
}

// New starts a control plane for t alone and stops it at the end of t.
func New(t testing.TB, opts controlplane.Options) *controlplane.ControlPlane {
	t.Helper()
	cp, err := controlplane.Start(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cp.Stop(); err != nil {
			t.Error(err)
		}
	})
	showLogs(t, cp)
	return cp
}

func showLogs(t testing.TB, cp *controlplane.ControlPlane) {
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the control plane's logs end with:\n%s", cp.LogTail(logLines))
		}
	})
}

// Namespace creates a namespace for t and returns its name. It deletes the namespace at the end of t.
// The content of the namespace is deleted only if a controller manager runs.
func Namespace(t testing.TB, cp *controlplane.ControlPlane) string {
	t.Helper()
	client, err := kubernetes.NewForConfig(cp.Config())
	if err != nil {
		t.Fatal(err)
	}
	wanted := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-" + label(t.Name()) + "-"}}
	namespace, err := client.CoreV1().Namespaces().Create(t.Context(), wanted, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), cleanupTimeout)
		defer cancel()
		if err := client.CoreV1().Namespaces().Delete(ctx, namespace.Name, metav1.DeleteOptions{}); err != nil {
			t.Logf("delete namespace: %v", err)
		}
	})
	return namespace.Name
}

// label returns the test's name in a form that can be part of a DNS label: at most 40 lowercase
// letters, digits and hyphens.
func label(name string) string {
	name = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(name))
	return strings.Trim(name[:min(len(name), 40)], "-")
}
