package replica

import (
	"cmp"
	"context"
	"log/slog"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/event/subject"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/broker"
	kafkareader "github.com/kuberelay/kuberelay/internal/publish/kafka/reader"
	natsreader "github.com/kuberelay/kuberelay/internal/publish/nats/reader"
)

// NATSOptions configures [NATS]. Only URLs is required. Log messages name the environment variables
// that set the same options for a forwarder.
type NATSOptions struct {
	URLs          []string // without credentials
	Stream        string   // "KUBERELAY" if empty
	SubjectPrefix string   // "kuberelay" if empty

	// Set at most one kind of credentials. The client reads the files again at each reconnect.
	User         string // with PasswordFile
	PasswordFile string
	TokenFile    string // the built-in server writes its token to nats/token in KUBERELAY_DATA_DIR
	CredsFile    string // a JWT and its seed, as nsc writes them
	NkeyFile     string // the seed of a user

	// PEM files for TLS. If none of them is set and the server requires TLS, the client uses TLS
	// and verifies the server with the system's certificate authorities.
	CAFile   string
	CertFile string // with KeyFile
	KeyFile  string
	// ServerName is the name that the certificate of the server must have. The default is the host
	// of the URL. If ServerName is set, the client requires TLS.
	ServerName string

	Domain string // the JetStream domain of the stream; the domain of the server if empty

	Logger *slog.Logger // none if nil
}

// KafkaOptions configures [Kafka]. Only Brokers is required. Log messages name the environment
// variables that set the same options for a forwarder.
type KafkaOptions struct {
	Brokers []string // as host:port, or host for port 9092
	Topic   string   // same value as KUBERELAY_KAFKA_TOPIC, including {group} and {resource}; "kuberelay" if empty

	TLS      bool
	CAFile   string // PEM; the system's certificate authorities if empty
	CertFile string // PEM, with KeyFile
	KeyFile  string
	// ServerName is the name that the certificates of all brokers must have. The default is the
	// host of each broker.
	ServerName string

	SASLMechanism string // PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER, AWS_MSK_IAM, or "" for none
	User          string
	PasswordFile  string
	OAuth         KafkaOAuth // for OAUTHBEARER
	// AWSRegion is the region for AWS_MSK_IAM. The default is the region in the broker names, or else
	// the region in the AWS configuration.
	AWSRegion string

	ClientID string // for the logs and quotas of the brokers; "kuberelay" if empty

	Logger *slog.Logger // none if nil
}

// KafkaOAuth is the source of the tokens for OAUTHBEARER. Set either TokenFile, or TokenURL and the
// other fields. TokenURL is a token endpoint for the client credentials grant.
type KafkaOAuth struct {
	TokenFile string

	TokenURL   string
	ClientID   string
	SecretFile string
	Scopes     []string
	Audience   string // not sent if empty
	CAFile     string // PEM, verifies the endpoint; the system's certificate authorities if empty
}

// Bus is a connection for reading a bus. It is safe for concurrent use.
type Bus struct {
	reader func(gr schema.GroupResource, cluster string) (r reader, release func() error, err error)
	prefix string          // prefix of the subjects; unused on Kafka
	open   context.Context // ends when the bus is closed
	close  func() error
	log    *slog.Logger
}

func newBus(b Bus) *Bus {
	var end func()
	b.open, end = context.WithCancel(context.Background())
	closed := b.close
	b.close = func() error { end(); return closed() }
	b.log = cmp.Or(b.log, slog.New(slog.DiscardHandler))
	return &b
}

// reader reads NATS or Kafka.
type reader interface {
	Subscribe(context.Context, publish.SubscribeOptions, func(*event.Message, publish.Delivery) error) error
}

var _, _ reader = (*natsreader.Bus)(nil), (*kafkareader.Bus)(nil)

// NATS connects to NATS. An unreachable server is not an error: lists and watches wait for the
// server. NATS returns an error for options that can't work, such as a malformed URL, an unreadable
// file, or rejected credentials. ctx limits only this call.
func NATS(ctx context.Context, o NATSOptions) (*Bus, error) {
	b, err := natsreader.Connect(ctx, natsreader.Options{
		URLs: o.URLs, Stream: o.Stream, SubjectPrefix: o.SubjectPrefix,
		User: o.User, PasswordFile: o.PasswordFile, TokenFile: o.TokenFile, CredsFile: o.CredsFile, NkeyFile: o.NkeyFile,
		CAFile: o.CAFile, CertFile: o.CertFile, KeyFile: o.KeyFile, ServerName: o.ServerName, Domain: o.Domain, Logger: o.Logger,
	})
	if err != nil {
		return nil, named(err)
	}
	return newBus(Bus{
		reader: func(schema.GroupResource, string) (reader, func() error, error) {
			return b, func() error { return nil }, nil
		},
		prefix: cmp.Or(o.SubjectPrefix, "kuberelay"),
		close:  b.Close,
		log:    o.Logger,
	}), nil
}

// Kafka returns a Bus without connecting. It returns an error only for options that can't work.
// Because Kafka has no subjects, each ListerWatcher reads the whole topic of its resource. All
// resources share a topic unless KUBERELAY_KAFKA_TOPIC has {resource} in it.
func Kafka(o KafkaOptions) (*Bus, error) {
	k := kafka{
		Topic: cmp.Or(o.Topic, "kuberelay"), Logger: o.Logger,
		Broker: broker.Options{
			Addrs: o.Brokers, TLS: o.TLS, CAFile: o.CAFile, CertFile: o.CertFile, KeyFile: o.KeyFile, ServerName: o.ServerName,
			SASLMechanism: o.SASLMechanism, User: o.User, PasswordFile: o.PasswordFile, AWSRegion: o.AWSRegion, ClientID: o.ClientID, Logger: o.Logger,
			OAuth: broker.OAuth{
				TokenFile: o.OAuth.TokenFile, TokenURL: o.OAuth.TokenURL, ClientID: o.OAuth.ClientID, SecretFile: o.OAuth.SecretFile,
				Scopes: o.OAuth.Scopes, Audience: o.OAuth.Audience, CAFile: o.OAuth.CAFile,
			},
		},
	}
	_, release, err := k.reader(schema.GroupResource{}, "") // checks the options
	if err != nil {
		return nil, named(err)
	}
	return newBus(Bus{reader: k.reader, close: release, log: o.Logger}), nil
}

// Close closes the connections to the bus and ends all lists and watches. It is idempotent.
func (b *Bus) Close() error { return b.close() }

type kafka kafkareader.Options

// reader opens a reader. Each list or watch has its own reader. In a shared reader, a slow consumer
// would block the others.
func (k kafka) reader(gr schema.GroupResource, cluster string) (reader, func() error, error) {
	o := kafkareader.Options(k)
	o.Cluster = cluster
	if gr.Resource != "" {
		o.Topic = strings.NewReplacer("{group}", cmp.Or(gr.Group, "core"), "{resource}", gr.Resource).Replace(o.Topic)
	}
	r, err := kafkareader.Open(o)
	if err != nil {
		return nil, nil, err
	}
	return r, r.Close, nil
}

// subjects returns the subjects of a resource's objects, markers, and consistency points. If
// cluster or namespace is empty, the subjects match all clusters or namespaces.
func subjects(prefix, cluster string, gr schema.GroupResource, namespace string) []string {
	key := event.Key{Group: gr.Group, Resource: gr.Resource, Namespace: namespace}
	object := strings.Split(subject.Object(prefix, cluster, key), ".")
	marker := strings.Split(subject.Marker(prefix, cluster, gr), ".")
	point := strings.Split(subject.Resolved(prefix, cluster, gr), ".")
	if cluster == "" {
		object[1], marker[1], point[1] = "*", "*", "*"
	}
	if namespace == "" {
		object = append(object[:4], ">")
	} else {
		object[5] = "*"
	}
	return []string{strings.Join(object, "."), strings.Join(marker, "."), strings.Join(point, ".")}
}
