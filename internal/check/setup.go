package check

import (
	"slices"
	"strings"
)

const configuration = "configuration"

// setupChecks returns the checks of the configuration.
func setupChecks() []Check {
	const group = "configuration"
	return []Check{
		{ID: configuration, Group: group, check: checkConfiguration},
		{ID: "kubeconfig", Group: group, check: checkKubeconfig},
		{ID: "redaction-key", Group: group, check: withSelection(checkRedactionKey)},
	}
}

func checkConfiguration(f *Facts) verdict {
	if f.ConfigErr != nil {
		return fail("correct the variables that the message names; forwarder help environment lists them all", "%v", f.ConfigErr)
	}
	return pass("every variable is valid")
}

func checkKubeconfig(f *Facts) verdict {
	if f.KubeErr != nil && f.severalClusters() {
		return fail("correct the source of clusters, see docs/fleet.md", "%v", f.KubeErr)
	}
	if f.KubeErr != nil {
		return fail("set KUBECONFIG to an existing file, or run in a pod with a service account", "%v", f.KubeErr)
	}
	return pass("the cluster is %s", f.Server.Host)
}

func checkRedactionKey(f *Facts) verdict {
	const fix = "set KUBERELAY_REDACTION_KEY_FILE to a file with at least 16 random bytes"
	switch {
	case f.Settings.Event.RedactionKeyFile != "":
		return pass("the redaction key is in KUBERELAY_REDACTION_KEY_FILE")
	case f.watches("secrets"):
		return warn(fix, "Secrets are watched, and each start generates a new key, so every hashed value shows as changed after a restart")
	case len(f.Settings.Content.HashFields) > 0:
		return warn(fix, "KUBERELAY_HASH_FIELDS is set, and each start generates a new key, so every hashed value shows as changed after a restart")
	}
	if hashed := f.hashedResources(); len(hashed) > 0 {
		return warn(fix, "fields of %s that are known to hold secrets are hashed, and each start generates a new key, so every hashed value shows as changed after a restart", names(hashed))
	}
	return skip("neither Secrets nor custom resources with hashed fields are watched, and KUBERELAY_HASH_FIELDS is not set")
}

// hashedResources lists the watched resources with hashed fields. It omits ConfigMaps and
// ControllerRevisions: almost every cluster has them, and almost none of them has such a field.
func (f *Facts) hashedResources() (all []string) {
	for _, field := range f.Selection.HashFields {
		resource, _, _ := strings.Cut(field, ":")
		if resource != "configmaps.core" && resource != "controllerrevisions.apps" && !slices.Contains(all, resource) {
			all = append(all, resource)
		}
	}
	return all
}
