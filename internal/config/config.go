// Package config is the configuration of the forwarder. It declares every environment variable
// once.
//
// [Load] reads the environment. Its result is complete and consistent, as far as that can be
// checked without the cluster and the bus. Load finds all mistakes at once, before anything starts.
// Each error names the variable, the value, and what to write instead. No error shows a secret.
// Secrets come from files. This package checks the contents of these files, but does not keep them.
//
// The tags of [Config] are the only description of a variable. [Fields] returns them as a table,
// and the documentation and the help are generated from that table.
//
// The package does not connect to anything, and does not know whether a selected resource exists.
package config

import (
	"errors"
	"time"
)

// Prefix begins the name of every variable.
const Prefix = "KUBERELAY_"

// The values of Event.Sink.
const (
	SinkNATS   = "nats"
	SinkKafka  = "kafka"
	SinkStdout = "stdout"
)

// The values of Watch.OnDeselect.
const (
	OnDeselectKeep    = "keep"
	OnDeselectPublish = "publish"
)

// The values of Operations.LogFormat. An empty value means text on a terminal and JSON elsewhere.
const (
	LogJSON = "json"
	LogText = "text"
)

// Config is the configuration by topic. The tags "envconfig" and "default" belong to package envconfig.
// The tag "decides" marks the settings that [Config.Digests] covers. [Field] documents the other tags.
type Config struct {
	Watch      Watch      `title:"What is watched"`
	Content    Content    `title:"What is sent" note:"docs/choosing.md has examples, describes the syntax of paths and the functions of expressions, and explains what happens when you change these settings."`
	Event      Event      `title:"Events"`
	NATS       NATS       `title:"NATS JetStream"`
	Server     Server     `title:"Built-in NATS server" note:"The server runs inside the forwarder if KUBERELAY_SINK is nats and KUBERELAY_NATS_URL is not set."`
	Kafka      Kafka      `title:"Kafka" note:"These variables apply if KUBERELAY_SINK is kafka. The forwarder creates missing topics. It checks existing topics, but never changes them."`
	Work       Work       `title:"Concurrency and timing"`
	Leader     Leader     `title:"Leader election" note:"Several forwarders can run for one cluster: one publishes, and the others stand by with synced informers. All of them need get and update on the Lease, and create on leases if the Lease does not exist."`
	Fleet      Fleet      `title:"Several clusters" note:"With one of the first three variables, a forwarder copies several clusters to one bus, each under its own name. See docs/fleet.md."`
	Operations Operations `title:"Operations"`
}

// Watch contains the settings for reading from the API server.
type Watch struct {
	Resources         List   `envconfig:"KUBERELAY_RESOURCES" decides:"bus" required:"true" example:"pods,deployments.apps" desc:"Resources to watch, written as for kubectl: deploy, deployments.apps, deployments.v1.apps, Widget.example.com, *.apps for a whole group, or * for all."`
	ExcludeResources  List   `envconfig:"KUBERELAY_EXCLUDE_RESOURCES" decides:"bus" unset:"none" example:"replicasets.apps" desc:"Resources not to watch even if KUBERELAY_RESOURCES selects them, written as in KUBERELAY_RESOURCES. Whatever this is set to, secrets, events, and leases are watched only if KUBERELAY_RESOURCES names them."`
	Namespaces        List   `envconfig:"KUBERELAY_NAMESPACES" decides:"bus" unset:"all" example:"default,team-a" desc:"Namespaces to watch. Cluster-scoped resources are always watched."`
	ExcludeNamespaces List   `envconfig:"KUBERELAY_EXCLUDE_NAMESPACES" decides:"bus" unset:"none" example:"kube-system,kube-node-lease" desc:"Namespaces not to watch even if KUBERELAY_NAMESPACES or KUBERELAY_NAMESPACE_SELECTOR selects them."`
	NamespaceSelector string `envconfig:"KUBERELAY_NAMESPACE_SELECTOR" decides:"bus" unset:"all namespaces" example:"team in (a,b),!sandbox" desc:"Watch only namespaces whose labels match, as in kubectl get -l. The selection is updated when labels change: if a namespace no longer matches, its objects get an event of type deselected. Requires list and watch on namespaces."`
	OnDeselect        string `envconfig:"KUBERELAY_ON_DESELECT" decides:"bus" default:"keep" oneof:"keep,publish" desc:"What to do with objects on the bus that the selection (resources, lists of namespaces, label selector, field selector) no longer includes. keep: leave them as they are. publish: send an event of type deselected for each."`
	Follow            List   `envconfig:"KUBERELAY_FOLLOW" decides:"bus" unset:"none" example:"ownerReferences,machines.cluster.x-k8s.io:spec.infrastructureRef" desc:"Paths of fields that refer to other objects, such as involvedObject or spec.template.spec.infrastructureRef. The forwarder watches these objects too. To limit a path to one resource, put the resource and a colon before it. ownerReferences follows owners, and events then name the top owner in ownerkind and ownername. References to excluded resources are not followed. References to secrets, events, and leases are followed only if KUBERELAY_RESOURCES names them."`
	LabelSelector     string `envconfig:"KUBERELAY_LABEL_SELECTOR" decides:"bus" unset:"all objects" example:"app=web,tier!=test" desc:"Watch only objects whose labels match, as in kubectl get -l."`
	FieldSelector     string `envconfig:"KUBERELAY_FIELD_SELECTOR" decides:"bus" unset:"all objects" example:"metadata.name=web" desc:"Watch only objects whose fields match, as in kubectl get --field-selector. Every watched resource must support the fields."`
	QPS               int    `envconfig:"KUBERELAY_KUBE_QPS" default:"100" min:"1" max:"10000" desc:"Average number of requests per second to the API server for lists and watches. Reads of single objects have a separate limit of the same size. A watch is one request, however long it lasts."`
	Burst             int    `envconfig:"KUBERELAY_KUBE_BURST" default:"500" min:"1" max:"10000" desc:"Maximum number of requests to the API server in one burst, counted as for KUBERELAY_KUBE_QPS. At startup, the forwarder sends one request for each resource, or for each resource in each namespace if it watches namespaces one by one."`
}

// Content selects the objects and fields that are sent. Other packages parse its values: see
// [Check].
type Content struct {
	Filter     string `envconfig:"KUBERELAY_FILTER" decides:"bus" unset:"all objects" example:"resource.kind == \"Pod\" ? object.status.phase == \"Failed\" : true" desc:"Publish only objects for which this CEL expression is true. Its variables are object, and resource with group, version, resource, kind, and namespaced. An object that stops matching gets an event of type deselected. If the expression fails for an object, the object is published and counted in kuberelay_filter_errors_total."`
	DropFields Paths  `envconfig:"KUBERELAY_DROP_FIELDS" decides:"bus" unset:"none" example:"nodes:.status.conditions[*].lastHeartbeatTime,*:.metadata.annotations[\"example.com/checksum\"]" desc:"Fields to leave out of events, written as a resource or *, a colon, and a JSONPath as in kubectl. If only these fields change, no event is sent. Separate entries with commas or line breaks."`
	HashFields Paths  `envconfig:"KUBERELAY_HASH_FIELDS" decides:"bus" unset:"none" example:"widgets.example.com:.spec.token,pods:.spec.containers[*].env[?(@.name==\"PASSWORD\")].value" desc:"Fields whose values are replaced by keyed hashes, written as in KUBERELAY_DROP_FIELDS. An event shows that such a field changed, but not its value. Values of Secrets, and most of their labels and annotations, are always hashed. Set KUBERELAY_REDACTION_KEY_FILE too."`
	HashKnown  bool   `envconfig:"KUBERELAY_HASH_KNOWN_FIELDS" decides:"bus" default:"true" desc:"Hash the fields of custom resources, ConfigMaps, and ControllerRevisions that are known to hold secrets, such as bootstrap tokens, OAuth clients, Helm releases, and copies of Secrets. docs/choosing.md lists these fields."`
	Data       string `envconfig:"KUBERELAY_DATA" decides:"bus" default:"object" oneof:"object,change" desc:"Data of an event. object: the bare object. change: the object, its state in the previous event, and the JSON Patch between the two states. The previous state and the patch are null if the previous state is not known."`
}

// Event contains the settings of the events and their destination.
type Event struct {
	Sink             string `envconfig:"KUBERELAY_SINK" default:"nats" oneof:"nats,kafka,stdout" desc:"Where to publish events: to NATS JetStream, to Kafka, or to standard output, one per line."`
	ClusterName      string `envconfig:"KUBERELAY_CLUSTER_NAME" unset:"the UID of the kube-system namespace" example:"prod-eu1" desc:"Name of the cluster in every event, subject, and key. If you change the name, the forwarder publishes everything again."`
	ClusterReplaces  string `envconfig:"KUBERELAY_CLUSTER_REPLACES" unset:"none" example:"2f6a1c52-8e0d-4a3e-9a77-0c1d5b8f4e21" desc:"UID of the kube-system namespace of a cluster that no longer exists. The current cluster takes over the former cluster's name on the bus."`
	ContentMode      string `envconfig:"KUBERELAY_CONTENT_MODE" decides:"bus" default:"binary" oneof:"binary,structured" desc:"CloudEvents content mode. binary: attributes in headers and the bare object as data. structured: everything in one JSON document. Standard output is always structured."`
	AllowPlaintext   bool   `envconfig:"KUBERELAY_ALLOW_PLAINTEXT_CREDENTIALS" default:"false" desc:"Allow a password or token of the bus to cross the network without TLS, where anyone on the network path can read it. Loopback addresses are always allowed. NATS creds files and nkeys, and SASL SCRAM, never send the secret itself."`
	RedactionKeyFile string `envconfig:"KUBERELAY_REDACTION_KEY_FILE" kind:"secret" unset:"a random key at each start" desc:"Key of at least 16 bytes for the hashes that replace the values of Secrets and other hashed fields. Set the key if Secrets are watched or KUBERELAY_HASH_FIELDS is set: if the key changes, every value shows as changed."`
}

// NATS contains the settings of the stream and for publishing to it.
type NATS struct {
	URLs          List          `envconfig:"KUBERELAY_NATS_URL" kind:"url" unset:"the built-in server" example:"nats://nats:4222" desc:"URLs of NATS servers: nats://, tls://, ws://, or wss://, followed by host and port. A URL must not contain credentials; put them in files."`
	Stream        string        `envconfig:"KUBERELAY_NATS_STREAM" default:"KUBERELAY" desc:"Name of the JetStream stream. The forwarder creates the stream if it does not exist."`
	SubjectPrefix string        `envconfig:"KUBERELAY_NATS_SUBJECT_PREFIX" default:"kuberelay" desc:"First token of every subject: letters, digits, -, and _."`
	Replicas      int           `envconfig:"KUBERELAY_NATS_REPLICAS" default:"1" min:"1" max:"5" desc:"Number of servers that hold a copy of the stream. With the built-in server, only 1 is possible."`
	History       int           `envconfig:"KUBERELAY_NATS_HISTORY" decides:"bus" default:"8" min:"1" max:"1000000" desc:"Number of events to keep for each object."`
	User          string        `envconfig:"KUBERELAY_NATS_USER" unset:"none" desc:"User name, together with KUBERELAY_NATS_PASSWORD_FILE. With the built-in server, the name that subscribers give."`
	PasswordFile  string        `envconfig:"KUBERELAY_NATS_PASSWORD_FILE" kind:"secret" unset:"none" desc:"Password of KUBERELAY_NATS_USER. With the built-in server, the password that subscribers give."`
	TokenFile     string        `envconfig:"KUBERELAY_NATS_TOKEN_FILE" kind:"secret" unset:"none" desc:"Token, instead of user and password. With the built-in server, the token that subscribers give."`
	CredsFile     string        `envconfig:"KUBERELAY_NATS_CREDS_FILE" kind:"secret" unset:"none" desc:"Credentials file with a user JWT and its seed, as nsc writes it."`
	NkeyFile      string        `envconfig:"KUBERELAY_NATS_NKEY_FILE" kind:"secret" unset:"none" desc:"Seed of a user's nkey."`
	CAFile        string        `envconfig:"KUBERELAY_NATS_TLS_CA_FILE" kind:"file" unset:"the system's" desc:"Certificate authorities in PEM to verify the server's certificate."`
	CertFile      string        `envconfig:"KUBERELAY_NATS_TLS_CERT_FILE" kind:"file" unset:"none" desc:"Client certificate in PEM, together with KUBERELAY_NATS_TLS_KEY_FILE."`
	KeyFile       string        `envconfig:"KUBERELAY_NATS_TLS_KEY_FILE" kind:"secret" unset:"none" desc:"Key of the client certificate in PEM."`
	ServerName    string        `envconfig:"KUBERELAY_NATS_TLS_SERVER_NAME" unset:"the host of the URL" example:"nats.example.com" desc:"Name that the server's certificate must have, if it differs from the host in KUBERELAY_NATS_URL. Requires TLS."`
	Domain        string        `envconfig:"KUBERELAY_NATS_JETSTREAM_DOMAIN" unset:"the server's own" example:"hub" desc:"JetStream domain of the stream, if the server in KUBERELAY_NATS_URL is in another domain, for example if the server is a leaf node and the stream is in the hub."`
	MaxInFlight   int           `envconfig:"KUBERELAY_NATS_MAX_IN_FLIGHT" default:"512" min:"1" max:"65536" desc:"Maximum number of events that are sent and not yet acknowledged, at most one for each object. A first sync or a resync uses at most half of this limit, and so do the changes of one resource in one namespace."`
	AckTimeout    time.Duration `envconfig:"KUBERELAY_NATS_ACK_TIMEOUT" default:"5s" min:"100ms" max:"5m" desc:"How long to wait for an acknowledgement before the event is retried."`
}

// Server contains the settings of the built-in NATS server.
type Server struct {
	Listen         string `envconfig:"KUBERELAY_NATS_LISTEN" kind:"address" default:"127.0.0.1:4222" desc:"Address at which subscribers reach the built-in server. Subscribers can read but not write. An address beyond the loopback interface requires credentials (KUBERELAY_NATS_TOKEN_FILE, or KUBERELAY_NATS_USER and KUBERELAY_NATS_PASSWORD_FILE), and also TLS (KUBERELAY_NATS_LISTEN_TLS_CERT_FILE) unless KUBERELAY_ALLOW_PLAINTEXT_CREDENTIALS is true."`
	AllowAnonymous bool   `envconfig:"KUBERELAY_NATS_ALLOW_ANONYMOUS" default:"false" desc:"Let every process that reaches the loopback interface read from the built-in server without credentials, whichever user runs the process. Use this setting in a pod, whose containers share the loopback interface. If it is false and no credentials are set, subscribers need the token in the file nats/token in KUBERELAY_DATA_DIR. The forwarder creates that file, and only the forwarder's user can read it. tail, get, and verify use that token."`
	CertFile       string `envconfig:"KUBERELAY_NATS_LISTEN_TLS_CERT_FILE" kind:"file" unset:"no TLS" desc:"Server certificate in PEM, together with KUBERELAY_NATS_LISTEN_TLS_KEY_FILE. Subscribers then need TLS. tail, get, and verify check the certificate against KUBERELAY_NATS_TLS_CA_FILE. Unless KUBERELAY_NATS_TLS_SERVER_NAME is set, the certificate must also name the host in KUBERELAY_NATS_LISTEN, or 127.0.0.1 if that address stands for all interfaces."`
	KeyFile        string `envconfig:"KUBERELAY_NATS_LISTEN_TLS_KEY_FILE" kind:"secret" unset:"none" desc:"Key of the server certificate in PEM."`
	MaxBytes       int    `envconfig:"KUBERELAY_NATS_MAX_BYTES" default:"0" min:"0" example:"10737418240" desc:"Maximum size in bytes of the events in the built-in server's files. 0 means three quarters of the space that is free or holds events when the server starts. At this size, the server refuses new events. These events wait in the forwarder, and nothing on the bus is lost. On a shared disk, or an emptyDir with a sizeLimit, set this value to three quarters of the available space."`
	DataDir        string `envconfig:"KUBERELAY_DATA_DIR" unset:"$XDG_DATA_HOME/kuberelay or ~/.local/share/kuberelay" example:"/var/lib/kuberelay" desc:"Directory for the built-in server's files."`
}

// Kafka contains the settings of the topics and for publishing to them.
type Kafka struct {
	Brokers         List          `envconfig:"KUBERELAY_KAFKA_BROKERS" kind:"brokers" unset:"none; required if KUBERELAY_SINK is kafka" example:"kafka-0:9092,kafka-1:9092" desc:"Bootstrap brokers, each written as host:port, or as host for port 9092. An address must not contain credentials; put them in files."`
	Topic           string        `envconfig:"KUBERELAY_KAFKA_TOPIC" default:"kuberelay" desc:"Topic of the events. With {group} and {resource} in the name, as in kuberelay.{group}.{resource}, each resource has its own topic. For the core group, {group} is core. With only {resource}, resources with the same name in different groups share a topic."`
	CheckpointTopic string        `envconfig:"KUBERELAY_KAFKA_CHECKPOINT_TOPIC" unset:"the topic's name without placeholders, followed by .checkpoint" example:"kuberelay.checkpoint" desc:"Compacted topic that records the acknowledged events. It is private to the forwarder."`
	Partitions      int           `envconfig:"KUBERELAY_KAFKA_PARTITIONS" default:"3" min:"1" max:"65535" desc:"Number of partitions of the topics that the forwarder creates."`
	Replication     int           `envconfig:"KUBERELAY_KAFKA_REPLICATION" default:"-1" min:"-1" max:"32767" desc:"Number of replicas of the topics that the forwarder creates, or -1 for the brokers' default."`
	CleanupPolicy   string        `envconfig:"KUBERELAY_KAFKA_CLEANUP_POLICY" default:"compact" oneof:"compact,delete" desc:"Cleanup policy of event topics. compact keeps the last event of each object and, for a while, earlier ones. delete keeps everything, because retention.ms and retention.bytes must be -1."`
	Tombstones      bool          `envconfig:"KUBERELAY_KAFKA_TOMBSTONES" decides:"bus" default:"true" desc:"Write a tombstone, a record with the same key and no value, right after each deleted or deselected event, so that tables built from the topic drop the object. With false, a compacted topic gets the tombstone after KUBERELAY_DELETE_RETENTION, and another topic gets none."`
	Compression     string        `envconfig:"KUBERELAY_KAFKA_COMPRESSION" default:"zstd" oneof:"none,gzip,snappy,lz4,zstd" desc:"Compression of batches."`
	Idempotent      bool          `envconfig:"KUBERELAY_KAFKA_IDEMPOTENT" decides:"bus" default:"true" desc:"Use an idempotent producer, so that the brokers store every event once, and fence a forwarder that another one has replaced. Use false for Kafka clusters that forbid idempotent producers: events can then repeat with the same IDs, and two concurrent forwarders go undetected."`
	TransactionalID string        `envconfig:"KUBERELAY_KAFKA_TRANSACTIONAL_ID" unset:"kuberelay.<cluster>" example:"kuberelay.prod-eu1" desc:"Transactional ID with which the brokers fence the cluster's previous forwarder. Kuberelay uses no transactions."`
	TLS             bool          `envconfig:"KUBERELAY_KAFKA_TLS" default:"false" desc:"Connect to the brokers with TLS and verify their certificates."`
	CAFile          string        `envconfig:"KUBERELAY_KAFKA_TLS_CA_FILE" kind:"file" unset:"the system's" desc:"Certificate authorities in PEM to verify the brokers' certificates."`
	CertFile        string        `envconfig:"KUBERELAY_KAFKA_TLS_CERT_FILE" kind:"file" unset:"none" desc:"Client certificate in PEM, together with KUBERELAY_KAFKA_TLS_KEY_FILE."`
	KeyFile         string        `envconfig:"KUBERELAY_KAFKA_TLS_KEY_FILE" kind:"secret" unset:"none" desc:"Key of the client certificate in PEM."`
	ServerName      string        `envconfig:"KUBERELAY_KAFKA_TLS_SERVER_NAME" unset:"the host of each broker" example:"kafka.example.com" desc:"Name that the certificates of all brokers must have, if it differs from the brokers' hosts."`
	SASLMechanism   string        `envconfig:"KUBERELAY_KAFKA_SASL_MECHANISM" oneof:"PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER,AWS_MSK_IAM" unset:"none" desc:"SASL mechanism for KUBERELAY_KAFKA_USER and KUBERELAY_KAFKA_PASSWORD_FILE. OAUTHBEARER uses a token instead: from KUBERELAY_KAFKA_OAUTH_TOKEN_FILE, or from KUBERELAY_KAFKA_OAUTH_TOKEN_URL. AWS_MSK_IAM uses the credentials that the AWS SDK finds, such as those of IRSA or EKS Pod Identity, and requires TLS (docs/security.md)."`
	User            string        `envconfig:"KUBERELAY_KAFKA_USER" unset:"none" desc:"User name, together with KUBERELAY_KAFKA_PASSWORD_FILE."`
	PasswordFile    string        `envconfig:"KUBERELAY_KAFKA_PASSWORD_FILE" kind:"secret" unset:"none" desc:"Password of KUBERELAY_KAFKA_USER."`
	TokenFile       string        `envconfig:"KUBERELAY_KAFKA_OAUTH_TOKEN_FILE" kind:"secret" unset:"none" desc:"Token for SASL OAUTHBEARER that another program renews, such as a projected service account token. When the file changes, the forwarder replaces its connections."`
	TokenURL        string        `envconfig:"KUBERELAY_KAFKA_OAUTH_TOKEN_URL" kind:"https" unset:"none" example:"https://login.example.com/oauth2/token" desc:"Token endpoint of an OpenID Connect provider. The forwarder requests its SASL OAUTHBEARER tokens there with client credentials, and renews them before they expire."`
	ClientID        string        `envconfig:"KUBERELAY_KAFKA_OAUTH_CLIENT_ID" unset:"none" desc:"Client ID for KUBERELAY_KAFKA_OAUTH_TOKEN_URL."`
	SecretFile      string        `envconfig:"KUBERELAY_KAFKA_OAUTH_CLIENT_SECRET_FILE" kind:"secret" unset:"none" desc:"Client secret for KUBERELAY_KAFKA_OAUTH_TOKEN_URL. The forwarder reads the file again for each token."`
	Scopes          List          `envconfig:"KUBERELAY_KAFKA_OAUTH_SCOPES" unset:"none" example:"kafka" desc:"Scopes to request from KUBERELAY_KAFKA_OAUTH_TOKEN_URL."`
	Audience        string        `envconfig:"KUBERELAY_KAFKA_OAUTH_AUDIENCE" unset:"none" example:"kafka" desc:"Audience to request from KUBERELAY_KAFKA_OAUTH_TOKEN_URL, if the provider requires one."`
	OAuthCAFile     string        `envconfig:"KUBERELAY_KAFKA_OAUTH_CA_FILE" kind:"file" unset:"the system's" desc:"Certificate authorities in PEM to verify the certificate of the server in KUBERELAY_KAFKA_OAUTH_TOKEN_URL."`
	AWSRegion       string        `envconfig:"KUBERELAY_KAFKA_AWS_REGION" unset:"the region in the brokers' names or in the AWS configuration" example:"eu-central-1" desc:"AWS region of the brokers, for AWS_MSK_IAM."`
	MaxInFlight     int           `envconfig:"KUBERELAY_KAFKA_MAX_IN_FLIGHT" default:"2048" min:"1" max:"65536" desc:"Maximum number of events that are sent and not yet acknowledged, at most one for each object. A first sync or a resync uses at most an eighth of this limit, and the changes of one resource in one namespace use at most half."`
	AckTimeout      time.Duration `envconfig:"KUBERELAY_KAFKA_ACK_TIMEOUT" default:"10s" min:"100ms" max:"5m" desc:"How long to wait for an acknowledgement before the event is retried."`
	BatchBytes      int           `envconfig:"KUBERELAY_KAFKA_BATCH_BYTES" default:"1048576" min:"1024" max:"104857600" desc:"Largest batch in bytes, before compression. A larger event is a batch of its own."`
}

// Work contains the settings for concurrency, periods, and timeouts.
type Work struct {
	Workers           int           `envconfig:"KUBERELAY_WORKERS" default:"4" min:"1" max:"1024" desc:"Number of keys processed at once. Waiting for an acknowledgement does not occupy a worker."`
	ResyncPeriod      time.Duration `envconfig:"KUBERELAY_RESYNC_PERIOD" default:"10m" min:"1s" desc:"How often to compare every object with its last acknowledged event. The comparison sends no request to the API server."`
	CheckpointRefresh time.Duration `envconfig:"KUBERELAY_CHECKPOINT_REFRESH" default:"10m" min:"1s" desc:"How often to reload the checkpoint from the bus, to find events that the bus lost and publish the states again."`
	ResolvedInterval  time.Duration `envconfig:"KUBERELAY_RESOLVED_INTERVAL" default:"10s" min:"0s" desc:"Shortest interval between two consistency points of a resource. A consistency point states the resourceVersion up to which the bus has every change of the resource. 0 turns off consistency points."`
	DeleteRetention   time.Duration `envconfig:"KUBERELAY_DELETE_RETENTION" decides:"bus" default:"24h" min:"1s" desc:"How long to keep the events of a deleted object. A subscriber that is away for longer can miss the delete. KUBERELAY_MAX_DELETES limits the number of deleted objects. On Kafka, see KUBERELAY_KAFKA_TOMBSTONES."`
	MaxDeletes        int           `envconfig:"KUBERELAY_MAX_DELETES" default:"0" min:"0" max:"100000000" desc:"Maximum number of deleted objects whose events are kept for KUBERELAY_DELETE_RETENTION. If there are more, the oldest are purged early, from the namespaces with the most deletes, but never within five minutes of the delete. 0 means the number that fits into half of the memory limit, or 500000 without a limit."`
	RetryBaseDelay    time.Duration `envconfig:"KUBERELAY_RETRY_BASE_DELAY" default:"50ms" min:"1ms" desc:"Backoff after the first failure to publish an object; each further failure doubles the backoff."`
	RetryMaxDelay     time.Duration `envconfig:"KUBERELAY_RETRY_MAX_DELAY" default:"30s" min:"1ms" desc:"Longest backoff between two attempts, before jitter of up to half of it. The number of attempts is not limited."`
	DrainTimeout      time.Duration `envconfig:"KUBERELAY_DRAIN_TIMEOUT" default:"20s" min:"0s" desc:"Longest time after SIGTERM to stop the informers and to publish the remaining changes. Closing the bus can take 8s more, and releasing the Lease 2s. Keep the sum below the pod's terminationGracePeriodSeconds."`
}

// Leader contains the settings for leader election.
type Leader struct {
	Election      bool          `envconfig:"KUBERELAY_LEADER_ELECTION" default:"false" desc:"Publish only while holding a Lease, and stand by otherwise. Not possible with the built-in server, because each process has its own server."`
	LeaseName     string        `envconfig:"KUBERELAY_LEASE_NAME" default:"kuberelay" desc:"Name of the Lease. Forwarders with the same cluster name need the same Lease, and all others need a different one."`
	Namespace     string        `envconfig:"KUBERELAY_LEASE_NAMESPACE" unset:"the pod's, or that of the kubeconfig's context" example:"kuberelay" desc:"Namespace of the Lease."`
	LeaseDuration time.Duration `envconfig:"KUBERELAY_LEASE_DURATION" default:"15s" min:"1s" max:"1h" desc:"How long standbys wait after the last renewal of the Lease before one of them takes over, in whole seconds. After a leader is killed, nothing is published for up to about this long plus KUBERELAY_LEASE_RETRY_PERIOD."`
	RenewDeadline time.Duration `envconfig:"KUBERELAY_LEASE_RENEW_DEADLINE" default:"10s" min:"100ms" desc:"How long a leader tries to renew the Lease before it stands by. The leader stops publishing at most this long plus KUBERELAY_LEASE_RETRY_PERIOD after its last renewal."`
	RetryPeriod   time.Duration `envconfig:"KUBERELAY_LEASE_RETRY_PERIOD" default:"2s" min:"100ms" desc:"How often a leader renews the Lease. Standbys check the Lease two to four times as often."`
}

// Fleet contains the settings of a forwarder that copies several clusters. Contexts, Dir, and
// ClusterAPI are alternative sources of clusters. At most one of them is set.
type Fleet struct {
	Contexts   List   `envconfig:"KUBERELAY_KUBECONFIG_CONTEXTS" unset:"one cluster" example:"prod-eu1,prod-us1=arn:aws:eks:us-east-1:1:cluster/prod" desc:"Contexts of KUBECONFIG, one for each cluster, or * for all. The name of the context is the name of the cluster on the bus. To use another name, write name=context. A change of the kubeconfig takes effect within seconds."`
	Dir        string `envconfig:"KUBERELAY_KUBECONFIG_DIR" unset:"one cluster" example:"/etc/kuberelay/clusters" desc:"Directory of kubeconfig files, one for each cluster. The file's name without the extension is the name of the cluster on the bus. New, changed, and removed files take effect within seconds."`
	ClusterAPI List   `envconfig:"KUBERELAY_CLUSTER_API" unset:"one cluster" example:"fleet-eu,fleet-us" desc:"Namespaces of Cluster API's Cluster objects, or * for all. The forwarder copies the cluster of each Cluster object, with the kubeconfig in the Secret that Cluster API creates. The Cluster objects and the Secrets are in the management cluster, which is the cluster of KUBECONFIG or of the pod. The name of a cluster on the bus is <namespace>.<name>. New clusters, removed clusters, and replaced Secrets take effect at once."`
	Management string `envconfig:"KUBERELAY_CLUSTER_API_MANAGEMENT_NAME" unset:"the management cluster is not copied" example:"management" desc:"Name of the management cluster on the bus. If it is set, the forwarder copies the management cluster too."`
}

// Operations contains the settings for logs, metrics, and profiles.
type Operations struct {
	ListenAddr     string `envconfig:"KUBERELAY_LISTEN_ADDR" kind:"address" default:":8080" desc:"Address that serves /metrics, /healthz, /readyz, /api/v1/status, /api/v1/trace, the status page at /, and, to callers at the loopback address, /debug/support/."`
	RequireMatches bool   `envconfig:"KUBERELAY_READY_REQUIRES_MATCHES" default:"false" desc:"Fail /readyz while an entry of a setting matches nothing in the cluster, such as a misspelled resource or namespace. If false, such an entry only causes a warning in the log and in forwarder status."`
	MetricsAuth    bool   `envconfig:"KUBERELAY_METRICS_AUTH" default:"false" desc:"Require a bearer token that the API server accepts. For /metrics, /debug/pprof/, and /debug/support/, the token's user must be allowed to get the requested path. For the status page, /api/v1/status, /api/v1/trace, and the text of /readyz, the user must be allowed to get /metrics. The forwarder needs create on tokenreviews and subjectaccessreviews, as in the ClusterRole system:auth-delegator. Turns on TLS, with a self-signed certificate unless KUBERELAY_LISTEN_TLS_CERT_FILE is set. /healthz and the status code of /readyz need no token."`
	CertFile       string `envconfig:"KUBERELAY_LISTEN_TLS_CERT_FILE" kind:"file" unset:"no TLS" desc:"Certificate in PEM to serve KUBERELAY_LISTEN_ADDR over TLS, together with KUBERELAY_LISTEN_TLS_KEY_FILE. A changed file takes effect with the next connection."`
	KeyFile        string `envconfig:"KUBERELAY_LISTEN_TLS_KEY_FILE" kind:"secret" unset:"none" desc:"Key of the certificate in KUBERELAY_LISTEN_TLS_CERT_FILE, in PEM."`
	LogLevel       string `envconfig:"KUBERELAY_LOG_LEVEL" default:"info" oneof:"debug,info,warn,error" desc:"Lowest level to log."`
	LogFormat      string `envconfig:"KUBERELAY_LOG_FORMAT" oneof:"json,text" unset:"json; text on a terminal" desc:"Format of the log on standard error."`
	StatusPage     bool   `envconfig:"KUBERELAY_STATUS_PAGE" default:"true" desc:"Serve the status page at / on KUBERELAY_LISTEN_ADDR, to the same callers as /api/v1/status. Callers at the loopback address also see the names of the most recently published objects. With KUBERELAY_METRICS_AUTH, all callers see these names."`
	Profiles       bool   `envconfig:"KUBERELAY_PPROF" default:"false" desc:"Serve profiles of the process at /debug/pprof/ on KUBERELAY_LISTEN_ADDR, for go tool pprof. Profiles show no content of objects, but each request costs CPU time."`
}

// UnlessNamed returns the resources that a wildcard in Watch.Resources never selects: Secrets
// because of their content, and events and leases because they change all the time.
func UnlessNamed() []string {
	return []string{"secrets", "events", "events.events.k8s.io", "leases.coordination.k8s.io"}
}

// Error is an error that only another configuration or other permissions can fix. A retry cannot
// succeed.
type Error struct{ Err error }

// Error implements error.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the wrapped error, for [errors.Is] and [errors.As].
func (e *Error) Unwrap() error { return e.Err }

// IsError reports whether err is or wraps an [Error].
func IsError(err error) bool {
	var wrong *Error
	return errors.As(err, &wrong)
}
