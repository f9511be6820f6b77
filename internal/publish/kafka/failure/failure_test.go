package failure

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"io"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
)

// errorNames returns the names that isName finds in a Go source file.
func errorNames(t *testing.T, file string, isName func(ast.Node) string) map[string]bool {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	names := make(map[string]bool)
	ast.Inspect(parsed, func(n ast.Node) bool {
		if name := isName(n); name != "" {
			names[name] = true
		}
		return true
	})
	return names
}

func TestEveryErrorOfKafkaGoHasAKind(t *testing.T) {
	pkg, err := build.Import("github.com/segmentio/kafka-go", ".", build.FindOnly)
	if err != nil {
		t.Fatal(err)
	}
	theirs := errorNames(t, filepath.Join(pkg.Dir, "error.go"), func(n ast.Node) string {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return ""
		}
		if typ, ok := spec.Type.(*ast.Ident); !ok || typ.Name != "Error" {
			return ""
		}
		return spec.Names[0].Name
	})
	ours := errorNames(t, "codes.go", func(n ast.Node) string {
		if selector, ok := n.(*ast.SelectorExpr); ok && selector.Sel.Name != "Error" {
			return selector.Sel.Name
		}
		return ""
	})
	if len(theirs) < 107 {
		t.Fatalf("found only %d errors in kafka-go's source", len(theirs))
	}
	for name := range theirs {
		if !ours[name] {
			t.Errorf("kafka.%s has no kind: name it in kindOfCode", name)
		}
	}
}

func TestKindOf(t *testing.T) {
	wrap := func(err error) error { return fmt.Errorf("act: %w", err) }
	tests := []struct {
		name string
		err  error
		want Kind
	}{
		{"not leader", kafka.NotLeaderForPartition, Retry},
		{"full disk", kafka.KafkaStorageError, Retry},
		{"too few replicas", kafka.NotEnoughReplicasAfterAppend, Retry},
		{"unknown to the server", kafka.Unknown, Retry},
		{"duplicate", kafka.DuplicateSequenceNumber, Duplicate},
		{"gap", kafka.OutOfOrderSequenceNumber, OutOfOrder},
		{"forgotten in the partition", kafka.UnknownProducerId, OutOfOrder},
		{"forgotten id", kafka.InvalidProducerIDMapping, OutOfOrder},
		{"fenced", kafka.ProducerFenced, Fenced},
		{"old epoch", kafka.InvalidProducerEpoch, Fenced},
		{"topic denied", Misconfigured("%w: add an ACL", kafka.TopicAuthorizationFailed), Denied},
		{"password refused", kafka.SASLAuthenticationFailed, Denied},
		{"certificate refused", &net.OpError{Op: "remote error", Err: tls.AlertError(42)}, Denied},
		{"batch too large", kafka.MessageSizeTooLarge, TooLarge},
		{"segment too small", kafka.RecordListTooLarge, TooLarge},
		{"too large for the Writer", kafka.MessageTooLargeError{}, TooLarge},
		{"policy", kafka.PolicyViolation, Never},
		{"misconfigured", Misconfigured("x"), Never},
		{"closed", ErrClosed, Never},
		{"code of the future", kafka.Error(9999), Never},
		{"anything", errors.New("x"), Never},
		{"their certificate", &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}, Never},
		{"no TLS there", tls.RecordHeaderError{}, Never},
		{"no route in the metadata", protocol.NewErrNoTopic("x"), Retry},
		{"no leader in the metadata", protocol.NewErrNoLeader("x", 1), Retry},
		{"answer to something else", protocol.Errorf("correlation id mismatch"), Retry},
		{"refused connection", &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}, Retry},
		{"reset", syscall.ECONNRESET, Retry},
		{"no such host", &net.DNSError{IsNotFound: true}, Retry},
		{"hung up", io.ErrUnexpectedEOF, Retry},
		{"no answer", context.DeadlineExceeded, Retry},
		{"slow connection", os.ErrDeadlineExceeded, Retry},
		{"cancelled", context.Canceled, Retry},
		{"fenced, and then given up", errors.Join(kafka.ProducerFenced, context.Canceled), Fenced},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := KindOf(wrap(tt.err)); got != tt.want {
				t.Errorf("got kind %d, want %d", got, tt.want)
			}
		})
	}
}
