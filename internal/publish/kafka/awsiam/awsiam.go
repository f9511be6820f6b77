package awsiam

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"regexp"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	signer "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/smithy-go/logging"
	"github.com/segmentio/kafka-go/sasl"
	"github.com/segmentio/kafka-go/sasl/aws_msk_iam_v2"

	"github.com/kuberelay/kuberelay/internal/credential"
)

// Name is the name of the SASL mechanism.
const Name = "AWS_MSK_IAM"

// window is the time before expiry at which credentials are renewed.
const window = 5 * time.Minute

// retrieveTimeout bounds one request for credentials, including its retries.
const retrieveTimeout = 8 * time.Second

// Options configure a Mechanism.
type Options struct {
	Region  string   // KUBERELAY_KAFKA_AWS_REGION
	Brokers []string // as host:port; the names of MSK brokers contain the region
	Logger  *slog.Logger
	now     func() time.Time // the clock; tests replace it
}

// Mechanism authenticates connections. It is safe for concurrent use.
type Mechanism struct {
	opts   Options
	region string
	files  *credential.Watcher // the shared files of the SDK

	mu      sync.Mutex
	chain   aws.CredentialsProvider // caches credentials until window before they expire
	last    aws.Credentials
	changed bool // last differs from the credentials before it, and Renew has not reported that yet
}

var _ sasl.Mechanism = (*Mechanism)(nil)

// New reads the SDK's configuration. It sends no requests.
func New(ctx context.Context, o Options) (*Mechanism, error) {
	if o.now == nil {
		o.now = time.Now
	}
	m := &Mechanism{opts: o, files: credential.NewWatcher(sharedFiles()...)}
	loaded, err := load(ctx)
	if err != nil {
		return nil, err
	}
	m.chain, m.region = loaded.Credentials, cmp.Or(o.Region, regionOf(o.Brokers), loaded.Region)
	if m.region == "" {
		return nil, errors.New("no AWS region: neither the broker names nor the AWS configuration contain one; set KUBERELAY_KAFKA_AWS_REGION or AWS_REGION")
	}
	return m, nil
}

// load reads the environment and the shared files.
func load(ctx context.Context) (aws.Config, error) {
	c, err := config.LoadDefaultConfig(ctx,
		config.WithLogger(logging.Nop{}), // the SDK's messages can contain secrets
		config.WithCredentialsCacheOptions(func(o *aws.CredentialsCacheOptions) { o.ExpiryWindow = window }))
	if err != nil {
		return c, explainLoad(err)
	}
	return c, nil
}

func sharedFiles() []string {
	return []string{
		cmp.Or(os.Getenv("AWS_SHARED_CREDENTIALS_FILE"), config.DefaultSharedCredentialsFilename()),
		cmp.Or(os.Getenv("AWS_CONFIG_FILE"), config.DefaultSharedConfigFilename()),
	}
}

// brokerName matches the names of MSK brokers, including those of serverless clusters.
var brokerName = regexp.MustCompile(`\.kafka(?:-serverless)?\.([a-z0-9-]+)\.amazonaws\.com(?:\.cn)?$`)

// regionOf returns the region from the first broker name that contains one, or "".
func regionOf(brokers []string) string {
	for _, b := range brokers {
		host, _, err := net.SplitHostPort(b)
		if err != nil {
			host = b
		}
		if match := brokerName.FindStringSubmatch(host); match != nil {
			return match[1]
		}
	}
	return ""
}

// Region returns the AWS region for which requests are signed.
func (m *Mechanism) Region() string { return m.region }

// Name implements [sasl.Mechanism].
func (m *Mechanism) Name() string { return Name }

// Start implements [sasl.Mechanism]. It might fetch credentials.
func (m *Mechanism) Start(ctx context.Context) (sasl.StateMachine, []byte, error) {
	presigner := &aws_msk_iam_v2.Mechanism{
		Signer: signer.NewSigner(), Region: m.region, SignTime: m.opts.now(),
		Credentials: aws.CredentialsProviderFunc(func(ctx context.Context) (aws.Credentials, error) {
			m.mu.Lock()
			defer m.mu.Unlock()
			return m.retrieve(ctx)
		}),
	}
	return presigner.Start(ctx)
}

// Renew renews the credentials if they are due, and reports whether the credentials have changed since the
// last call. It does nothing until [Mechanism.Start] has fetched the first credentials.
func (m *Mechanism) Renew(ctx context.Context) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.last.HasKeys() {
		return false
	}
	_, err := m.retrieve(ctx)
	changed := m.changed && err == nil
	m.changed = m.changed && err != nil
	return changed
}

// Source names the provider of the credentials in use, such as WebIdentityCredentials. It returns "" before the
// first credentials are fetched.
func (m *Mechanism) Source() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.last.Source
}

// retrieve returns valid credentials: those of the chain, or the last ones if the chain fails before they expire.
func (m *Mechanism) retrieve(ctx context.Context) (aws.Credentials, error) {
	ctx, cancel := context.WithTimeout(ctx, retrieveTimeout)
	defer cancel()
	m.reload(ctx)
	next, err := m.chain.Retrieve(ctx)
	end := m.last.Expires.Add(window)
	switch {
	case err == nil:
		m.changed = m.changed || m.last.HasKeys() && !same(m.last, next)
		m.last = next
		return next, nil
	case m.last.HasKeys() && m.last.CanExpire && m.opts.now().Before(end):
		m.opts.Logger.Warn("cannot renew the AWS credentials for Kafka, using the last ones until they expire", "expires", end, "err", explain(err))
		return m.last, nil
	}
	return aws.Credentials{}, explain(err)
}

// reload reads the shared files again if they have changed.
func (m *Mechanism) reload(ctx context.Context) {
	if !m.files.Changed() {
		return
	}
	loaded, err := load(ctx)
	if err != nil {
		m.opts.Logger.Warn("cannot reload the AWS configuration, keeping the previous one", "err", err)
		return
	}
	m.chain = loaded.Credentials
}

func same(a, b aws.Credentials) bool {
	return a.AccessKeyID == b.AccessKeyID && a.SecretAccessKey == b.SecretAccessKey && a.SessionToken == b.SessionToken
}
