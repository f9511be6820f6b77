package broker

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	signer "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kuberelay/kuberelay/internal/publish/kafka/advice"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/failure"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/login"
	"github.com/kuberelay/kuberelay/test/lab/logtest"
	"github.com/kuberelay/kuberelay/test/lab/tlstest"
)

const awsSecret = "Hunter4Hunter4"

// amazon is a Kafka cluster that requires AWS_MSK_IAM. Its kfake brokers use TLS. They record the
// payloads and accept those that are signed with the secret key of the account. The tests of
// package awsiam verify signatures without the SDK.
type amazon struct {
	*kfake.Cluster

	caFile   string
	mu       sync.Mutex
	payloads []map[string]string
}

// withIAM starts the cluster. The client's credentials are in a shared file, and withIAM returns
// its path.
func withIAM(t *testing.T) (*amazon, string) {
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_PROFILE", "AWS_REGION"} {
		t.Setenv(name, "")
	}
	shared := writeFile(t, "credentials", "[default]\naws_access_key_id = AKID1\naws_secret_access_key = "+awsSecret+"\n")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", shared)
	t.Setenv("AWS_CONFIG_FILE", writeFile(t, "config", ""))
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")

	authority := tlstest.NewCA(t)
	certificate, _, _ := authority.Issue("broker")
	a := &amazon{caFile: authority.File}
	var err error
	a.Cluster, err = kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, faulty), kfake.TLS(&tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Close)
	a.ControlKey(int16(kmsg.SASLHandshake), func(r kmsg.Request) (kmsg.Response, error, bool) {
		a.KeepControl()
		response := r.ResponseKind().(*kmsg.SASLHandshakeResponse)
		response.SupportedMechanisms = []string{login.AWSIAM}
		if r.(*kmsg.SASLHandshakeRequest).Mechanism != login.AWSIAM {
			response.ErrorCode = kerr.UnsupportedSaslMechanism.Code
		}
		return response, nil, true
	})
	a.ControlKey(int16(kmsg.SASLAuthenticate), func(r kmsg.Request) (kmsg.Response, error, bool) {
		a.KeepControl()
		response := r.ResponseKind().(*kmsg.SASLAuthenticateResponse)
		if err := a.authenticate(r.(*kmsg.SASLAuthenticateRequest).SASLAuthBytes); err != nil {
			response.ErrorCode, response.ErrorMessage = kerr.SaslAuthenticationFailed.Code, kmsg.StringPtr(err.Error())
		}
		return response, nil, true
	})
	return a, shared
}

// authenticate signs the same request as the client and compares the signatures.
func (a *amazon) authenticate(payload []byte) error {
	var values map[string]string
	if err := json.Unmarshal(payload, &values); err != nil {
		return err
	}
	a.mu.Lock()
	a.payloads = append(a.payloads, values)
	a.mu.Unlock()
	key, _, _ := strings.Cut(values["x-amz-credential"], "/")
	at, err := time.Parse("20060102T150405Z", values["x-amz-date"])
	if err != nil || time.Since(at) > time.Minute {
		return fmt.Errorf("signed at %s", values["x-amz-date"])
	}
	const empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" // SHA-256 of no body
	request, err := http.NewRequest(http.MethodGet, "kafka://127.0.0.1/?Action=kafka-cluster%3AConnect&X-Amz-Expires=300", http.NoBody)
	if err != nil {
		return err
	}
	signed, _, err := signer.NewSigner().PresignHTTP(request.Context(), aws.Credentials{AccessKeyID: key, SecretAccessKey: awsSecret}, request, empty, "kafka-cluster", "eu-central-1", at)
	if err != nil {
		return err
	}
	u, err := url.Parse(signed)
	if err != nil {
		return err
	}
	if values["host"] != "127.0.0.1" || values["x-amz-signature"] != u.Query().Get("X-Amz-Signature") {
		return fmt.Errorf("the signature for %s differs", values["host"])
	}
	return nil
}

// keys returns the access key IDs of all connections, in order.
func (a *amazon) keys() (keys []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, p := range a.payloads {
		key, _, _ := strings.Cut(p["x-amz-credential"], "/")
		keys = append(keys, key)
	}
	return keys
}

func (a *amazon) client(t *testing.T, change ...func(*Options)) *Client {
	return newClient(t, a.ListenAddrs()[0], append([]func(*Options){func(o *Options) {
		o.TLS, o.CAFile, o.SASLMechanism, o.AWSRegion = true, a.caFile, login.AWSIAM, "eu-central-1"
	}}, change...)...)
}

func TestIAM(t *testing.T) {
	a, shared := withIAM(t)
	c := a.client(t)
	put(t, c, faulty, 0, record("a", "1"))
	keys := a.keys()
	if len(keys) == 0 || keys[0] != "AKID1" {
		t.Fatalf("signed with %q", keys)
	}

	t.Run("other credentials", func(t *testing.T) {
		first := c.connections()
		replaceFile(t, shared, writeFile(t, "next", "[default]\naws_access_key_id = AKID2\naws_secret_access_key = "+awsSecret+"\n"))
		c.transport.renewToken(t.Context())
		put(t, c, faulty, 0, record("a", "2"))
		if keys := a.keys(); keys[len(keys)-1] != "AKID2" {
			t.Errorf("signed with %q", keys)
		}
		c.awaitClosed(t, first)
	})
	t.Run("refused by the brokers", func(t *testing.T) {
		replaceFile(t, shared, writeFile(t, "wrong", "[default]\naws_access_key_id = AKID3\naws_secret_access_key = Wrong4Wrong4\n"))
		log := &logtest.Log{}
		_, err := a.client(t, func(o *Options) { o.Logger = log.Logger() }).Topic(within(t), faulty)
		wantMisconfigured(t, err, failure.Denied, "rejected the AWS credentials", "eu-central-1", "kafka-cluster:Connect")
		if text := fmt.Sprint(err) + log.String(); strings.Contains(text, "Wrong4") {
			t.Errorf("the secret is in: %s", text)
		}
	})
	t.Run("another region", func(t *testing.T) {
		_, err := a.client(t, func(o *Options) { o.AWSRegion = "eu-west-1" }).Topic(within(t), faulty)
		wantMisconfigured(t, err, failure.Denied, "for region eu-west-1", "KUBERELAY_KAFKA_AWS_REGION")
	})
	t.Run("no credentials", func(t *testing.T) {
		t.Setenv("AWS_SHARED_CREDENTIALS_FILE", "/none")
		_, err := a.client(t).Topic(within(t), faulty)
		wantError(t, err, failure.Retry, "no AWS credentials", "AWS_WEB_IDENTITY_TOKEN_FILE")
	})
	for name, o := range map[string]struct {
		Options
		parts []string
	}{
		"no region": {Options{TLS: true}, []string{"no AWS region", "KUBERELAY_KAFKA_AWS_REGION"}},
		"no TLS":    {Options{AWSRegion: "eu-central-1"}, []string{"AWS_MSK_IAM, which needs TLS", "KUBERELAY_KAFKA_TLS=true"}},
	} {
		t.Run(name, func(t *testing.T) {
			o.Addrs, o.SASLMechanism = []string{"kafka:9098"}, login.AWSIAM
			_, err := New(o.Options)
			wantMisconfigured(t, err, failure.Never, o.parts...)
		})
	}
	t.Run("a region in the names of the brokers", func(t *testing.T) {
		c := a.client(t, func(o *Options) {
			o.AWSRegion, o.Addrs = "", []string{"b-1.demo.abc123.c2.kafka.eu-south-1.amazonaws.com:9098"}
		})
		if m, ok := c.transport.auth.(interface{ Region() string }); !ok || m.Region() != "eu-south-1" {
			t.Errorf("got %v", c.transport.auth)
		}
	})
	t.Run("a permission", func(t *testing.T) {
		if got, want := c.advisor.AddACL(advice.OnTopic("Write", "t")), "allow kafka-cluster:WriteData on topic t in the IAM policy of the role"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}
