package awsiam

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"regexp"

	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/smithy-go"
)

var (
	// ErrUnavailable means that the credential source does not respond, or has no credentials. A retry can help.
	ErrUnavailable = errors.New("no AWS credentials")
	// ErrRefused means that the credential source refuses to issue credentials to the forwarder.
	ErrRefused = errors.New("AWS refuses to issue credentials")
)

// imdsID identifies the instance metadata service in the SDK's errors. That service is the last one in the chain.
const imdsID = "ec2imds"

const sources = "EKS sets AWS_WEB_IDENTITY_TOKEN_FILE and AWS_ROLE_ARN (IRSA) or AWS_CONTAINER_CREDENTIALS_FULL_URI (Pod Identity) for a service account with a role; " +
	"elsewhere, set AWS_SHARED_CREDENTIALS_FILE and AWS_PROFILE, or give the instance a role"

// explain describes an error without the SDK's text, which can contain the body of a response or the
// output of a credential process.
func explain(err error) error {
	var operation *smithy.OperationError
	var response interface{ HTTPStatusCode() int }
	var failed *url.Error
	where := "the AWS credential chain"
	if errors.As(err, &operation) {
		where = operation.ServiceID + " " + operation.OperationName
	}
	switch {
	case errors.As(err, &response) && response.HTTPStatusCode() >= http.StatusBadRequest:
		return explainResponse(where, response.HTTPStatusCode(), err)
	case operation != nil && operation.ServiceID == imdsID:
		return fmt.Errorf("%w: no other source is configured, and the instance metadata service provides none: %s", ErrUnavailable, sources)
	case errors.As(err, &failed):
		return fmt.Errorf("%w: %s: %w", ErrUnavailable, where, failed.Err)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return fmt.Errorf("%w: %s did not respond in time: %w", ErrUnavailable, where, context.DeadlineExceeded)
	}
	if err := unreadable("AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"); err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return fmt.Errorf("%w: %s failed (%T)", ErrUnavailable, where, innermost(err))
}

// explainResponse describes an error response by its HTTP status and AWS error code. Only a client error that a retry
// cannot fix is [ErrRefused].
func explainResponse(where string, status int, err error) error {
	kind, words := ErrUnavailable, fmt.Sprintf("%d %s", status, http.StatusText(status))
	if status < http.StatusInternalServerError && status != http.StatusRequestTimeout && status != http.StatusTooManyRequests {
		kind = ErrRefused
	}
	var answer smithy.APIError
	if errors.As(err, &answer) {
		code := answer.ErrorCode()
		if _, throttled := retry.DefaultThrottleErrorCodes[code]; throttled || code == "IDPCommunicationError" {
			kind = ErrUnavailable
		}
		if errorCode.MatchString(code) {
			words += ", " + code
		}
	}
	return fmt.Errorf("%w: %s: %s", kind, where, words)
}

// errorCode matches AWS error codes, such as AccessDenied.
var errorCode = regexp.MustCompile(`^[A-Z][A-Za-z]{1,60}$`)

// unreadable returns the error for the first environment variable whose file cannot be read.
func unreadable(variables ...string) error {
	for _, name := range variables {
		if path := os.Getenv(name); path != "" {
			if _, err := os.ReadFile(path); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	return nil
}

func innermost(err error) error {
	for {
		next := errors.Unwrap(err)
		if next == nil {
			return err
		}
		err = next
	}
}

// explainLoad describes an error without the lines of a malformed shared file, which can contain secrets.
func explainLoad(err error) error {
	var file config.SharedConfigLoadError
	if errors.As(err, &file) {
		return fmt.Errorf("the AWS configuration file %s cannot be read: check AWS_CONFIG_FILE and AWS_SHARED_CREDENTIALS_FILE", file.Filename)
	}
	return fmt.Errorf("invalid AWS configuration: %w; check the AWS_* environment variables and the AWS configuration files", err)
}
