// Package refusal says which answer of an API server an error is: 401, 403 or another, with what
// the API server says about it, and what to do. client-go leaves the number out, and of some
// answers everything else, too.
//
// It guarantees that the chain of an error stays. It does not find out more than the answer says.
package refusal

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Explain returns an error whose text begins with the status code, if it is an answer of an API
// server. It returns any other error unchanged, and what it has returned, too.
func Explain(err error) error {
	var answer apierrors.APIStatus
	var explained *explanation
	if err == nil || errors.As(err, &explained) || !errors.As(err, &answer) {
		return err
	}
	status := answer.Status()
	code := int(status.Code)
	name := http.StatusText(code)
	if name == "" {
		return err
	}
	message := strings.TrimSpace(err.Error())
	if message == "" || message == "unknown" { // client-go's word for a body that it does not read
		message = "no reason given"
	}
	return &explanation{fmt.Sprintf("%d %s: %s%s", code, name, message, cure(code, message)), err}
}

// cure says what to do about an answer, "" if that depends.
func cure(code int, message string) string {
	switch {
	case code == http.StatusUnauthorized:
		return "; the token or the client certificate is missing, wrong or expired: replace it in KUBECONFIG, or check the service account of the pod"
	case code == http.StatusForbidden && strings.Contains(message, "system:anonymous"):
		return "; the request has no credentials: add a token or a client certificate to KUBECONFIG, or mount the service account's token"
	}
	return ""
}

// explanation is an error with another text.
type explanation struct {
	text string
	err  error
}

func (e *explanation) Error() string { return e.text }
func (e *explanation) Unwrap() error { return e.err }
