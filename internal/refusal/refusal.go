// Package refusal adds the HTTP status code, such as 401 or 403, and a fix to errors from the API
// server. The text of client-go's errors lacks the code. For some responses, the text is only
// "unknown".
//
// [errors.Is] and [errors.As] still find the original error. The package sends no request, so it adds
// no details that the response does not contain.
package refusal

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Explain adds the status code to the beginning of the error text, if err is a response from an API
// server. It returns any other error unchanged, including an error that it has already explained.
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
	if message == "" || message == "unknown" { // client-go's text for a body that it can't parse
		message = "no reason given"
	}
	return &explanation{fmt.Sprintf("%d %s: %s%s", code, name, message, fixFor(code, message)), err}
}

// fixFor returns the fix for the cause of a response, or "" if there is no general fix.
func fixFor(code int, message string) string {
	switch {
	case code == http.StatusUnauthorized:
		return "; the token or the client certificate is missing, wrong, or expired: replace it in KUBECONFIG, or check the service account of the pod"
	case code == http.StatusForbidden && strings.Contains(message, "system:anonymous"):
		return "; the request has no credentials: add a token or a client certificate to KUBECONFIG, or mount the service account's token"
	}
	return ""
}

// explanation wraps an error and replaces its text.
type explanation struct {
	text string
	err  error
}

func (e *explanation) Error() string { return e.text }
func (e *explanation) Unwrap() error { return e.err }
