// Package controlplanetest gives a test a real control plane: one for all
// tests of a package, started by the first that wants it,
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
// or its own control plane, for a test that kills or restores parts of it: New.
//
// A test that fails prints the end of the components' logs.
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

// Run runs the tests, stops the control plane if a test has started it, and returns the exit code.
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

// ControlPlane returns the shared control plane. The first call starts it. TestMain of the package
// must call Run.
func (s *Shared) ControlPlane(t testing.TB) *controlplane.ControlPlane {
	t.Helper()
	s.once.Do(func() { s.cp, s.err = controlplane.Start(context.Background(), s.Options) })
	if s.err != nil {
		t.Fatal(s.err)
	}
	showLogs(t, s.cp)
	return s.cp
}

// New starts a control plane only for t and stops it at the end of t.
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

// Namespace creates a namespace for t and returns its name. It deletes the namespace at the end of
// t. Its content is deleted only if there is a controller manager.
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

// label turns a test's name into a part of a DNS label, with the allowed characters and length.
func label(name string) string {
	name = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(name))
	return strings.Trim(name[:min(len(name), 40)], "-")
}
