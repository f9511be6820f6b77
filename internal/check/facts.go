package check

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/kuberelay/kuberelay/internal/config"
	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/explain"
	"github.com/kuberelay/kuberelay/internal/publish/kafka"
	"github.com/kuberelay/kuberelay/internal/publish/nats"
	"github.com/kuberelay/kuberelay/internal/status"
)

// Facts are the observations. An observation that failed has an error or is nil.
type Facts struct {
	Pre     bool // the forwarder is not installed yet
	Now     time.Time
	Version string // version of this program
	Writer  string // the name on Kafka of a forwarder in this pod or on this host

	Settings  config.Config
	ConfigErr error
	Cluster   string // the name of the cluster if the forwarder copies several; otherwise ""

	KubeErr      error // why no kubeconfig could be loaded
	Server       Server
	Selection    explain.Explanation
	SelectionErr error
	Rights       map[Right]Answer
	Lists        []List
	Lease        Lease

	// Validities maps the id of a check to the certificates and tokens that the check judges.
	Validities map[string][]Validity

	NATS   nats.Inspection
	Kafka  kafka.Inspection
	BusErr error // why the bus could not be inspected

	MemoryLimit int64 // bytes; 0 for none
	DataDir     DataDir

	Forwarder    *status.Document
	ForwarderErr error
	TokenNeeded  bool // the forwarder requires a token
	// TokenNotReviewed means that the forwarder responds but cannot review the token.
	TokenNotReviewed bool
}

// Server describes the API server. Err is the error of the first request, or of the request for the
// name of the user. If Err is set, the other facts can be unknown.
type Server struct {
	Host    string
	Err     error
	User    string // "" if the server does not report it
	Version string
	Ready   error
	Skew    *time.Duration // how far its clock is ahead of this machine's; nil if unknown
	UID     string         // UID of the kube-system namespace
	UIDErr  error
}

// Right is a permission in the cluster.
type Right struct{ Verb, Group, Resource, Namespace, Name string }

// Answer is the API server's decision about a [Right].
type Answer struct {
	Allowed bool
	Err     error
}

// List describes the first page of a watched resource's list.
type List struct {
	Resource string
	Objects  int64 // -1 if the API server does not count
	Sampled  int64
	Bytes    int64 // total size of the sampled objects
	Largest  int64 // size of the largest sampled object
	Err      error
}

// Lease is the Lease of the leader election.
type Lease struct {
	Namespace, Name string
	Exists          bool
	Holder          string // "" if nobody holds it now
	Err             error
}

// Validity is the period in which a certificate or a token is valid.
type Validity struct {
	What        string // describes the certificate or token, for example by its variable
	From, Until time.Time
	Err         error
}

// DataDir is the directory of the built-in server.
type DataDir struct {
	Path string
	Err  error // why the directory cannot be used
	Free int64 // bytes of the volume; -1 if unknown
}

// severalClusters reports whether the forwarder copies several clusters, which share its memory and
// the bus.
func (f *Facts) severalClusters() bool { return f.Settings.Fleet.Source() != "" }

// claim returns the claim of the cluster name on the bus.
func (f *Facts) claim() (event.Claim, error) {
	if f.Settings.Event.Sink == config.SinkKafka {
		return f.Kafka.Claim, f.Kafka.ClaimErr
	}
	return f.NATS.Claim, f.NATS.ClaimErr
}

// withServer returns a check that is skipped without an API server.
func withServer(check func(*Facts) verdict) func(*Facts) verdict {
	return func(f *Facts) verdict {
		switch {
		case f.KubeErr != nil:
			return skip("no cluster is configured")
		case f.Server.Err != nil:
			return skip("the API server cannot be queried")
		}
		return check(f)
	}
}

// withSelection returns a check that is skipped if the watched resources are unknown.
func withSelection(check func(*Facts) verdict) func(*Facts) verdict {
	return withServer(func(f *Facts) verdict {
		if f.SelectionErr != nil {
			return skip("the watched resources are unknown: %v", f.SelectionErr)
		}
		return check(f)
	})
}

// withBus returns a check that is skipped without a bus.
func withBus(check func(*Facts) verdict) func(*Facts) verdict {
	return func(f *Facts) verdict {
		switch {
		case f.Settings.Event.Sink == config.SinkStdout:
			return skip("KUBERELAY_SINK is stdout")
		case f.Settings.BuiltInServer() && f.Pre:
			return skip("the built-in server starts with the forwarder")
		case f.BusErr != nil:
			return skip("the bus cannot be queried")
		}
		return check(f)
	}
}

// Add adds the response to a list request with a limit. If the response is not the whole list and
// does not count the remaining objects, the number of objects is unknown.
func (l *List) Add(answer []byte) error {
	var list struct {
		Metadata struct {
			Continue  string `json:"continue"`
			Remaining *int64 `json:"remainingItemCount"`
		} `json:"metadata"`
		Items []json.RawMessage `json:"items"`
	}
	if err := json.Unmarshal(answer, &list); err != nil {
		return fmt.Errorf("the response is not a list: %w", err)
	}
	for _, item := range list.Items {
		l.Bytes += int64(len(item))
		l.Largest = max(l.Largest, int64(len(item)))
	}
	l.Sampled += int64(len(list.Items))
	switch {
	case l.Objects < 0:
	case list.Metadata.Remaining != nil:
		l.Objects += int64(len(list.Items)) + *list.Metadata.Remaining
	case list.Metadata.Continue == "":
		l.Objects += int64(len(list.Items))
	default:
		l.Objects = -1
	}
	return nil
}
