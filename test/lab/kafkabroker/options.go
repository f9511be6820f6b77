package kafkabroker

import (
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
)

// A Listener is one of the broker's listeners, by the name of its protocol.
type Listener string

// The listeners. The first is always there; clients on it are the user ANONYMOUS.
const (
	Plaintext     Listener = "PLAINTEXT"
	SASLPlaintext Listener = "SASL_PLAINTEXT"
	SSL           Listener = "SSL"
	Proxied       Listener = "PROXIED"     // plaintext, whose clients are sent elsewhere: see Advertise
	ProxiedToo    Listener = "PROXIED_TOO" // another of these
	SASLSSL       Listener = "SASL_SSL"

	controller Listener = "CONTROLLER" // the broker's own
)

// Options say what Start starts. The zero value is a broker with a plaintext
// listener and a temporary folder.
type Options struct {
	// Dir is where the broker keeps its data, configuration and log; it is made
	// if need be, and stays. What an earlier broker left there is used. Without
	// it the broker has a temporary folder, which is removed at its end.
	Dir string
	// Listeners are the listeners beside Plaintext, each on a port of its own.
	Listeners []Listener
	// Advertise gives, for a proxied listener's address, the one that clients are
	// told to connect to. It is asked at each start.
	Advertise func(addr string) string
	// Users are who may log in on the SASL listeners, with their passwords, by
	// PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512. Those of SCRAM are kept with the
	// data: for a Dir that has some, what was said when it was made holds.
	Users map[string]string
	// TLS is for the SSL listeners, and needed there.
	TLS TLS
	// Authorize refuses what no ACL allows. Without it everybody may do
	// everything. The user ANONYMOUS and SuperUsers always may.
	Authorize  bool
	SuperUsers []string
	// Properties are added to the broker's server.properties, and win over
	// those that are there.
	Properties map[string]string
	// Join makes this a broker of another broker's cluster, which must be running. The
	// first broker of a cluster is its only controller. Close the others first.
	Join *Broker
	// NodeID is the id of a broker that joins, from 2 on. Without Join it is 1.
	NodeID int
	// Log is told what takes long and, at any time before Close returns, if the
	// broker ends unasked. The default is the standard error.
	Log io.Writer
}

// TLS names the files, in PEM, that the broker shows itself and knows clients by.
type TLS struct {
	// CertFile and KeyFile are the broker's certificate chain, which must be good
	// for 127.0.0.1, and its key in PKCS #8.
	CertFile, KeyFile string
	// CAFile has the authorities that clients' certificates must come from. With
	// it, a client on the SSL listener must show one, and is the user of its
	// common name. On SASL_SSL none is asked for.
	CAFile string
}

// word is what needs no quoting wherever a user's name or password goes.
var word = regexp.MustCompile(`^[A-Za-z0-9._~-]+$`)

func (o Options) validate() error {
	if (o.Join != nil) != (o.NodeID > 1) {
		return fmt.Errorf("node id %d: a broker that joins another needs one from 2 on, and only such a broker", o.NodeID)
	}
	var tls, sasl bool
	for i, l := range o.Listeners {
		switch l {
		case Proxied, ProxiedToo:
			if o.Advertise == nil {
				return errors.New("a proxied listener needs Advertise")
			}
		case SASLPlaintext:
			sasl = true
		case SSL:
			tls = true
		case SASLSSL:
			sasl, tls = true, true
		default:
			return fmt.Errorf("there is no further listener %q: use %s, %s, %s or %s", l, Proxied, SASLPlaintext, SSL, SASLSSL)
		}
		if slices.Contains(o.Listeners[:i], l) {
			return fmt.Errorf("listener %s is named twice", l)
		}
	}
	if tls && (o.TLS.CertFile == "" || o.TLS.KeyFile == "") {
		return errors.New("an SSL listener needs TLS.CertFile and TLS.KeyFile")
	}
	if sasl && len(o.Users) == 0 {
		return errors.New("a SASL listener needs Users")
	}
	for name, password := range o.Users {
		if !word.MatchString(name) || !word.MatchString(password) {
			return fmt.Errorf("user %q: use letters, digits and ._~- in name and password", name)
		}
	}
	return nil
}

// nodeID returns the id of the broker in its cluster.
func (o Options) nodeID() int { return max(o.NodeID, 1) }

// log returns Log or its default.
func (o Options) log() io.Writer {
	if o.Log == nil {
		return os.Stderr
	}
	return o.Log
}
