package check

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/version"
)

// The ids of the checks that judge a [Validity].
const (
	ServerCertificate = "api-server-certificate"
	ClientCertificate = "api-server-client-certificate"
	ServerToken       = "api-server-token"
	BusCertificate    = "bus-certificate"
	BusClient         = "bus-client-certificate"
	BusAuthorities    = "bus-authorities"
	BusToken          = "bus-token"
	ListenCertificate = "listen-certificate"
)

func serverChecks() []Check {
	const group = "API server"
	return []Check{
		{ID: "api-server-reachable", Group: group, check: checkReachable},
		{ID: ServerCertificate, Group: group, check: checkServerCertificate},
		{ID: "api-server-credentials", Group: group, check: checkCredentials},
		{ID: ClientCertificate, Group: group, check: validity(ClientCertificate, "the kubeconfig has no client certificate", "renew the client certificate in the kubeconfig")},
		{ID: ServerToken, Group: group, check: validity(ServerToken, "the kubeconfig has no token with an expiry", "replace the token; in a pod, check that the service account token is mounted")},
		{ID: "api-server-version", Group: group, check: withServer(checkVersion)},
		{ID: "api-server-ready", Group: group, check: withServer(checkReady)},
		{ID: "api-server-clock", Group: group, check: withServer(checkServerClock)},
		{ID: "discovery", Group: group, check: withServer(checkDiscovery)},
	}
}

// isCertificate reports whether err means that a certificate could not be verified.
func isCertificate(err error) bool {
	var unknown x509.UnknownAuthorityError
	var verification *tls.CertificateVerificationError
	return errors.As(err, &unknown) || errors.As(err, &verification)
}

// answered reports whether the API server responded, with success or with an error.
func answered(err error) bool {
	var status apierrors.APIStatus
	return err == nil || errors.As(err, &status)
}

func checkReachable(f *Facts) verdict {
	err := f.Server.Err
	switch {
	case f.KubeErr != nil:
		return skip("no cluster is configured")
	case !answered(err) && !isCertificate(err):
		return fail("check server in the kubeconfig, the network, and the NetworkPolicy (networkPolicy.apiServerTo)", "%s does not respond: %v", f.Server.Host, err)
	}
	return pass("%s responds", f.Server.Host)
}

func checkServerCertificate(f *Facts) verdict {
	switch err := f.Server.Err; {
	case f.KubeErr != nil:
		return skip("no cluster is configured")
	case isCertificate(err):
		return fail("check certificate-authority and server in the kubeconfig", "the certificate of the API server cannot be verified: %v", err)
	}
	return validity(ServerCertificate, "the API server presents no certificate", "renew the certificate of the API server")(f)
}

func checkCredentials(f *Facts) verdict {
	const fix = "check the token or the client certificate in the kubeconfig; in a pod, check that the service account token is mounted"
	switch err := f.Server.Err; {
	case f.KubeErr != nil:
		return skip("no cluster is configured")
	case apierrors.IsUnauthorized(err):
		return fail(fix, "the API server does not accept the credentials: %v", err)
	case err != nil && !answered(err):
		return skip("the API server cannot be queried")
	case err != nil:
		return fail(fix, "the API server does not report the user: %v", err)
	case f.Server.User == "system:anonymous":
		return fail(fix, "the API server treats the forwarder as an anonymous user: the kubeconfig has no credentials")
	case f.Server.User == "":
		return pass("the API server accepts the credentials")
	}
	return pass("the user is %s", f.Server.User)
}

// oldest is the oldest supported version of Kubernetes (docs/install.md).
const oldest = "1.25"

func checkVersion(f *Facts) verdict {
	is, err := version.ParseGeneric(f.Server.Version)
	switch {
	case err != nil:
		return skip("the API server reports the version %q, which cannot be parsed", f.Server.Version)
	case is.LessThan(version.MustParseGeneric(oldest)):
		return warn("upgrade Kubernetes to "+oldest+" or later", "the version is %s, and Kuberelay needs %s or later", f.Server.Version, oldest)
	}
	return pass("the version is %s", f.Server.Version)
}

func checkReady(f *Facts) verdict {
	switch err := f.Server.Ready; {
	case apierrors.IsForbidden(err), apierrors.IsNotFound(err):
		return skip("/readyz cannot be read: %v", err)
	case err != nil:
		return warn("wait until the API server is ready; kubectl get --raw='/readyz?verbose' says what it waits for", "the API server is not ready: %v", err)
	}
	return pass("the API server is ready")
}

// The clock skews that cause a warning and a failure. Date headers are in whole seconds.
const (
	skewWarning = 5 * time.Second
	skewFailure = 5 * time.Minute
)

func checkServerClock(f *Facts) verdict {
	return checkClock(f.Server.Skew, "the API server")
}

func checkClock(skew *time.Duration, of string) verdict {
	if skew == nil {
		return skip("%s does not report its time", of)
	}
	const fix = "synchronize the clocks of both machines, for example with chrony"
	d := skew.Abs().Round(time.Second)
	direction := "ahead of"
	if *skew < 0 {
		direction = "behind"
	}
	switch {
	case d >= skewFailure:
		return fail(fix, "the clock of %s is %s %s that of this machine, so tokens, certificates, and leases can seem expired or not yet valid", of, d, direction)
	case d >= skewWarning:
		return warn(fix, "the clock of %s is %s %s that of this machine", of, d, direction)
	}
	return pass("the clocks differ by less than %s", skewWarning)
}

func checkDiscovery(f *Facts) verdict {
	if f.SelectionErr != nil {
		return fail("repair the API server, or what the error names", "discovery fails: %v", f.SelectionErr)
	}
	var failing []string
	for _, g := range f.Selection.FailingGroups {
		failing = append(failing, g.Group+" ("+g.Error+")")
	}
	if len(failing) > 0 {
		return warn("repair or remove the APIService: kubectl get apiservices shows which one is not available", "discovery of API groups fails: %s", names(failing))
	}
	return pass("discovery is complete")
}

// validity returns a check of the certificates and tokens that [Facts.Validities] has for an id.
// The check reports the worst of them. If the id has no certificates or tokens, the check is
// skipped, with none as the reason.
func validity(id, none, fix string) func(*Facts) verdict {
	return func(f *Facts) verdict {
		all := f.Validities[id]
		if len(all) == 0 {
			return skip("%s", none)
		}
		worst := pass("%s is valid until %s", all[0].What, all[0].Until.UTC().Format(time.RFC3339))
		for _, v := range all {
			if is := judgeValidity(v, f.Now, fix); is.status.Code() > worst.status.Code() {
				worst = is
			}
		}
		return worst
	}
}

// soon is the time before expiry at which a certificate or token causes a warning. If a tenth of
// its validity period is shorter than soon, that tenth applies instead, because tokens and
// short-lived certificates are replaced automatically.
const soon = 7 * 24 * time.Hour

func judgeValidity(v Validity, now time.Time, fix string) verdict {
	until := v.Until.UTC().Format(time.RFC3339)
	switch left := v.Until.Sub(now); {
	case v.Err != nil:
		return fail(fix, "%s cannot be read: %v", v.What, v.Err)
	case left <= 0:
		return fail(fix, "%s expired at %s", v.What, until)
	case v.From.After(now.Add(skewWarning)):
		return fail(fix, "%s is not valid before %s", v.What, v.From.UTC().Format(time.RFC3339))
	case left < min(soon, v.Until.Sub(v.From)/10):
		return warn(fix, "%s expires at %s", v.What, until)
	}
	return pass("")
}
