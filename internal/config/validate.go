package config

import (
	"bytes"
	"errors"
	"regexp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
)

var (
	token         = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)
	referencePath = regexp.MustCompile(`^([a-z0-9]([a-z0-9.-]*[a-z0-9])?:)?[A-Za-z_][A-Za-z0-9_-]*(\[\*\])?(\.[A-Za-z_][A-Za-z0-9_-]*(\[\*\])?)*$`)
	clusterName   = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,252}$`)
)

// validate runs the checks of particular variables and of combinations. It skips variables that
// already have a problem.
func (c *Config) validate(p *problems) {
	c.Watch.validate(p)
	c.validateFleet(p)
	c.Event.validate(p)
	c.NATS.validateNames(p)
	c.NATS.validateCredentials(p)
	p.checkTLS(tlsFiles{"KUBERELAY_NATS_TLS", c.NATS.CAFile, c.NATS.CertFile, c.NATS.KeyFile})
	c.validateKafka(p)
	if c.BuiltInServer() && !p.has("KUBERELAY_NATS_URL") {
		c.validateBuiltIn(p)
	}
	c.validatePlaintext(p)
	p.checkTLS(tlsFiles{"KUBERELAY_LISTEN_TLS", "", c.Operations.CertFile, c.Operations.KeyFile})
	if c.Work.RetryBaseDelay > c.Work.RetryMaxDelay && !p.has("KUBERELAY_RETRY_MAX_DELAY") {
		p.add("KUBERELAY_RETRY_BASE_DELAY", "longer than KUBERELAY_RETRY_MAX_DELAY, which is %s; shorten this, or raise KUBERELAY_RETRY_MAX_DELAY",
			formatDuration(c.Work.RetryMaxDelay))
	}
	c.Leader.validate(p)
	if c.Leader.Election && c.BuiltInServer() && !p.has("KUBERELAY_NATS_URL") {
		p.add("KUBERELAY_LEADER_ELECTION", "each forwarder would have a built-in server of its own; set KUBERELAY_NATS_URL to a server that they share, or run a single forwarder without leader election")
	}
}

// BuiltInServer reports whether the settings ask for the built-in NATS server.
func (c *Config) BuiltInServer() bool { return c.Event.Sink == SinkNATS && len(c.NATS.URLs) == 0 }

// validate checks the names, and that the durations make an election safe: a leader must stop by
// itself before another can start.
func (l *Leader) validate(p *problems) {
	const name, namespace, duration = "KUBERELAY_LEASE_NAME", "KUBERELAY_LEASE_NAMESPACE", "KUBERELAY_LEASE_DURATION"
	const deadline, retry = "KUBERELAY_LEASE_RENEW_DEADLINE", "KUBERELAY_LEASE_RETRY_PERIOD"
	if len(validation.IsDNS1123Subdomain(l.LeaseName)) > 0 && !p.has(name) {
		p.add(name, "not a name; use at most 253 lowercase letters, digits, hyphens, and periods")
	}
	if l.Namespace != "" && len(validation.IsDNS1123Label(l.Namespace)) > 0 {
		p.add(namespace, "not a valid namespace name; use at most 63 lowercase letters, digits, and hyphens")
	}
	if p.has(duration) || p.has(deadline) || p.has(retry) {
		return
	}
	if l.LeaseDuration%time.Second != 0 {
		p.add(duration, "a Lease counts whole seconds; write a whole number of seconds, such as 15s")
	}
	if l.RenewDeadline+l.RetryPeriod >= l.LeaseDuration {
		p.add(duration, "%s is too short: a leader can write for up to %s after its last renewal (%s plus %s), and another forwarder must not lead until then; use more than %[2]s",
			formatDuration(l.LeaseDuration), formatDuration(l.RenewDeadline+l.RetryPeriod), deadline, retry)
	}
	if l.RenewDeadline < 2*l.RetryPeriod {
		p.add(deadline, "less than twice %s, which is %s: one failed renewal would end the leadership; use at least %s", retry, formatDuration(l.RetryPeriod), formatDuration(2*l.RetryPeriod))
	}
}

func (w *Watch) validate(p *problems) {
	for _, list := range []struct {
		name  string
		items List
	}{{"KUBERELAY_RESOURCES", w.Resources}, {"KUBERELAY_EXCLUDE_RESOURCES", w.ExcludeResources}} {
		for _, s := range list.items {
			if err := checkSelector(s); err != nil {
				p.addItem(list.name, list.items, s, err)
			}
		}
	}
	w.validateNamespaces(p)
	for _, path := range w.Follow {
		if field := path[strings.LastIndexByte(path, ':')+1:]; strings.EqualFold(strings.TrimSuffix(field, "s"), "ownerReference") && field != "ownerReferences" {
			p.addItem("KUBERELAY_FOLLOW", w.Follow, path, errors.New("no object has such a field; write ownerReferences"))
		}
		if !referencePath.MatchString(path) {
			p.addItem("KUBERELAY_FOLLOW", w.Follow, path, errors.New("not a field path; "+
				"write it as spec.infrastructureRef, or as machines.cluster.x-k8s.io:spec.infrastructureRef for one resource"))
		}
	}
	if _, err := labels.Parse(w.LabelSelector); err != nil {
		p.add("KUBERELAY_LABEL_SELECTOR", "not a label selector: %w; write it as app=web,tier!=test or app in (web,api)", err)
	}
	if _, err := fields.ParseSelector(w.FieldSelector); err != nil {
		p.add("KUBERELAY_FIELD_SELECTOR", "not a field selector: %w; write it as metadata.name=web,status.phase!=Running", err)
	}
	if w.Burst < w.QPS && !p.has("KUBERELAY_KUBE_BURST") {
		p.add("KUBERELAY_KUBE_QPS", "more than KUBERELAY_KUBE_BURST, which is %d; lower this, or raise KUBERELAY_KUBE_BURST", w.Burst)
	}
}

func (w *Watch) validateNamespaces(p *problems) {
	for _, list := range []struct {
		name   string
		items  List
		remedy string
	}{
		{"KUBERELAY_NAMESPACES", w.Namespaces, "for all namespaces"},
		{"KUBERELAY_EXCLUDE_NAMESPACES", w.ExcludeNamespaces, "to exclude none"},
	} {
		for _, ns := range list.items {
			if len(validation.IsDNS1123Label(ns)) > 0 {
				p.addItem(list.name, list.items, ns, errors.New("not a valid namespace name; "+
					"use at most 63 lowercase letters, digits, and hyphens, or leave the variable out "+list.remedy))
			}
		}
	}
	if len(w.Namespaces) > 0 && !slices.ContainsFunc(w.Namespaces, func(ns string) bool { return !slices.Contains(w.ExcludeNamespaces, ns) }) {
		p.add("KUBERELAY_EXCLUDE_NAMESPACES", "it excludes all of KUBERELAY_NAMESPACES; remove the namespaces to watch from it")
	}
	if _, err := labels.Parse(w.NamespaceSelector); err != nil {
		p.add("KUBERELAY_NAMESPACE_SELECTOR", "not a label selector: %w; write it as team=a,tier!=test or team in (a,b)", err)
	}
}

func (e *Event) validate(p *problems) {
	if e.ClusterName != "" && !clusterName.MatchString(e.ClusterName) {
		p.add("KUBERELAY_CLUSTER_NAME", "not a name; use at most 253 letters, digits, periods, underscores, and hyphens, and begin with a letter or digit")
	}
	if e.ClusterReplaces != "" && e.ClusterName == "" && !p.has("KUBERELAY_CLUSTER_REPLACES") {
		p.add("KUBERELAY_CLUSTER_REPLACES", "there is no name to take over; set KUBERELAY_CLUSTER_NAME to the former cluster's name")
	}
	const name = "KUBERELAY_REDACTION_KEY_FILE"
	if !p.has(name) {
		if _, err := e.RedactionKey(); err != nil {
			p.add(name, "%w", err)
		}
	}
}

func (n *NATS) validateNames(p *problems) {
	if len(n.Stream) > 255 || strings.ContainsFunc(n.Stream, notInStreamName) {
		p.add("KUBERELAY_NATS_STREAM", "not the name of a stream; use at most 255 letters, digits, hyphens, and underscores")
	}
	if !token.MatchString(n.SubjectPrefix) {
		p.add("KUBERELAY_NATS_SUBJECT_PREFIX", "not one token of a subject; use letters, digits, hyphens, and underscores, without periods")
	}
	if n.Domain != "" && !token.MatchString(n.Domain) {
		p.add("KUBERELAY_NATS_JETSTREAM_DOMAIN", "not one token of a subject; use letters, digits, hyphens, and underscores, without periods")
	}
}

// notInStreamName reports whether a stream name cannot contain r. It is nats-server's rule
// (checkStreamCfg): no separators, wildcards, or spaces, because the name is a subject token and the
// name of a directory.
func notInStreamName(r rune) bool { return r <= ' ' || r >= 0x7f || strings.ContainsRune(`.*>/\`, r) }

func (n *NATS) validateCredentials(p *problems) {
	const user, password = "KUBERELAY_NATS_USER", "KUBERELAY_NATS_PASSWORD_FILE"
	switch {
	case n.User != "" && n.PasswordFile == "" && !p.has(password):
		p.add(user, "a user needs a password; name the file that holds it in %s", password)
	case n.User == "" && n.PasswordFile != "":
		p.add(password, "a password needs a user; set %s", user)
	}
	var first string
	for _, kind := range []struct{ name, path string }{
		{password, n.PasswordFile},
		{"KUBERELAY_NATS_TOKEN_FILE", n.TokenFile},
		{"KUBERELAY_NATS_CREDS_FILE", n.CredsFile},
		{"KUBERELAY_NATS_NKEY_FILE", n.NkeyFile},
	} {
		switch {
		case kind.path == "":
		case first == "":
			first = kind.name
		default:
			p.add(kind.name, "%s is set as well; keep one of them", first)
		}
	}
	if creds := p.read("KUBERELAY_NATS_CREDS_FILE", n.CredsFile); creds != nil &&
		(!bytes.Contains(creds, []byte("BEGIN NATS USER JWT")) || !bytes.Contains(creds, []byte("BEGIN USER NKEY SEED"))) {
		p.add("KUBERELAY_NATS_CREDS_FILE", "the file does not hold a user JWT and a seed; write it with: nsc generate creds")
	}
	// The seed of a user begins with SU (nkeys).
	if seed := p.read("KUBERELAY_NATS_NKEY_FILE", n.NkeyFile); seed != nil &&
		!bytes.HasPrefix(bytes.TrimSpace(seed), []byte("SU")) && !bytes.Contains(seed, []byte("\nSU")) {
		p.add("KUBERELAY_NATS_NKEY_FILE", "the file does not hold the seed of a user's nkey, which begins with SU; make one with: nk -gen user")
	}
}
