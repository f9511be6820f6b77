package projection

import (
	"slices"

	"github.com/kuberelay/kuberelay/internal/event"
)

// knownFields are fields that hold secrets by their definition, in the form of
// KUBERELAY_HASH_FIELDS. docs/choosing.md lists them. A new entry must name its source. The last name
// in its path must consist of jsonPlain characters. Otherwise, every object of the resource is decoded.
var knownFields = slices.Concat(
	// Helm releases of the storage driver "configmap", compressed, with all values and manifests.
	// helm/helm: pkg/storage/driver/cfgmaps.go.
	[]string{"configmaps.core:.data.release"},

	// Bootstrap tokens, and files and passwords for cloud-init.
	// kubernetes-sigs/cluster-api: api/bootstrap/kubeadm.
	under(kubeadmFields,
		"kubeadmconfigs.bootstrap.cluster.x-k8s.io:.spec",
		"kubeadmconfigtemplates.bootstrap.cluster.x-k8s.io:.spec.template.spec",
		"kubeadmcontrolplanes.controlplane.cluster.x-k8s.io:.spec.kubeadmConfigSpec",
		"kubeadmcontrolplanetemplates.controlplane.cluster.x-k8s.io:.spec.template.spec.kubeadmConfigSpec"),

	// openshift/api: oauth/v1/types.go.
	[]string{
		"oauthaccesstokens.oauth.openshift.io:.authorizeToken",
		"oauthaccesstokens.oauth.openshift.io:.refreshToken",
		"useroauthaccesstokens.oauth.openshift.io:.authorizeToken",
		"useroauthaccesstokens.oauth.openshift.io:.refreshToken",
		"oauthclients.oauth.openshift.io:.secret",
		"oauthclients.oauth.openshift.io:.additionalSecrets[*]",
	},

	// dexidp/dex: storage/kubernetes/types.go.
	[]string{
		"authrequests.dex.coreos.com:.connectorData",
		"authcodes.dex.coreos.com:.connectorData",
		"connectors.dex.coreos.com:.config",
		"oauth2clients.dex.coreos.com:.secret",
		"offlinesessionses.dex.coreos.com:.connectorData",
		"passwords.dex.coreos.com:.hash",
		"refreshtokens.dex.coreos.com:.token",
		"refreshtokens.dex.coreos.com:.connectorData",
		"signingkeies.dex.coreos.com:.signingKey",
	},

	// Copies of Secrets in objects that distribute objects to other clusters or namespaces.
	under(secretFields,
		// karmada-io/karmada: pkg/apis/work/v1alpha1/work_types.go.
		`works.work.karmada.io:.spec.workload.manifests[?(@.kind=="Secret")]`,
		// open-cluster-management-io/api: work/v1/types.go, work/v1alpha1.
		`manifestworks.work.open-cluster-management.io:.spec.workload.manifests[?(@.kind=="Secret")]`,
		`manifestworkreplicasets.work.open-cluster-management.io:.spec.manifestWorkTemplate.workload.manifests[?(@.kind=="Secret")]`,
		// openshift/hive: apis/hive/v1/syncset_types.go.
		`syncsets.hive.openshift.io:.spec.resources[?(@.kind=="Secret")]`,
		`selectorsyncsets.hive.openshift.io:.spec.resources[?(@.kind=="Secret")]`,
		// openshift/api: template/v1/types.go. An instance has a copy of its template.
		`templates.template.openshift.io:.objects[?(@.kind=="Secret")]`,
		`templateinstances.template.openshift.io:.spec.template.objects[?(@.kind=="Secret")]`),
	// crossplane-contrib/provider-kubernetes: apis/object/v1alpha2/types.go. A path cannot have a
	// condition on a single object, so the data of a ConfigMap is hashed too.
	under([]string{".data[*]", ".stringData[*]", ".metadata.annotations[*]"},
		"objects.kubernetes.crossplane.io:.spec.forProvider.manifest",
		"objects.kubernetes.crossplane.io:.status.atProvider.manifest"),
	[]string{
		"templates.template.openshift.io:.parameters[*].value",
		"templateinstances.template.openshift.io:.spec.template.parameters[*].value",
		// kubernetes-retired/kubefed: docs/userguide.md, "Federated resource".
		"federatedsecrets.types.kubefed.io:.spec.template.data[*]",
		"federatedsecrets.types.kubefed.io:.spec.template.stringData[*]",
		// rancher/fleet: pkg/apis/fleet.cattle.io/v1alpha1.
		"bundles.fleet.cattle.io:.spec.resources[*].content",
		"contents.fleet.cattle.io:.content",
	},

	// The state of a control plane, including its keys.
	// gardener/gardener: pkg/apis/core/v1beta1/types_shootstate.go.
	[]string{
		"shootstates.core.gardener.cloud:.spec.gardener[*].data",
		"shootstates.core.gardener.cloud:.spec.extensions[*].state",
		"shootstates.core.gardener.cloud:.spec.resources[*].data",
	},

	// rancher/rancher: pkg/apis/management.cattle.io/v3. The commands contain the token.
	[]string{
		"tokens.management.cattle.io:.token",
		"clusterregistrationtokens.management.cattle.io:.status[*]",
	},

	// Passwords and keys for cloud-init. kubevirt/kubevirt: staging/src/kubevirt.io/api/core/v1. KubeVirt
	// copies the spec of a started machine to a ControllerRevision (pkg/virt-controller/watch/vm).
	under([]string{
		".cloudInitNoCloud.userData", ".cloudInitNoCloud.userDataBase64",
		".cloudInitConfigDrive.userData", ".cloudInitConfigDrive.userDataBase64",
	},
		"virtualmachines.kubevirt.io:.spec.template.spec.volumes[*]",
		"virtualmachineinstances.kubevirt.io:.spec.volumes[*]",
		"virtualmachineinstancereplicasets.kubevirt.io:.spec.template.spec.volumes[*]",
		"virtualmachinepools.pool.kubevirt.io:.spec.virtualMachineTemplate.spec.template.spec.volumes[*]",
		"controllerrevisions.apps:.data.spec.template.spec.volumes[*]"),
)

var kubeadmFields = []string{
	".initConfiguration.bootstrapTokens[*].token",
	".joinConfiguration.discovery.bootstrapToken.token",
	".joinConfiguration.discovery.tlsBootstrapToken",
	".files[*].content",
	".users[*].passwd",
}

var secretFields = []string{
	".data[*]", ".stringData[*]", ".metadata.labels[*]", ".metadata.annotations[*]",
}

// under returns an entry for each field at each place.
func under(fields []string, places ...string) []string {
	var entries []string
	for _, place := range places {
		for _, field := range fields {
			entries = append(entries, place+field)
		}
	}
	return entries
}

// Known returns a projection that hashes the fields that are known to hold secrets.
func Known() Projections {
	p, err := ParseHash(knownFields)
	if err != nil {
		panic(err) // a test parses them
	}
	return p
}

// Entries returns the entries that match one of these resources.
func (p Projections) Entries(resources []event.Resource) []string {
	var matching []string
	for _, e := range p.entries {
		if e.matchesAny(resources) {
			matching = append(matching, e.text)
		}
	}
	return matching
}

func (e entry) matchesAny(resources []event.Resource) bool {
	return slices.ContainsFunc(resources, func(r event.Resource) bool { return matches(e.resource, r) })
}

// Readable returns the fields of q in these resources that p neither drops nor hashes.
func (p Projections) Readable(q Projections, resources []event.Resource) []string {
	var readable []string
	for _, e := range q.entries {
		for _, r := range resources {
			covered := func(by entry) bool { return matches(by.resource, r) && covers(by.path, e.path) }
			if matches(e.resource, r) && !slices.ContainsFunc(p.entries, covered) {
				readable = append(readable, e.text)
				break
			}
		}
	}
	return readable
}

// covers reports whether the path by selects each field that the other path selects, or an object or
// list that contains the field.
func covers(by, path []step) bool {
	return len(by) <= len(path) && slices.EqualFunc(by, path[:len(by)], func(b, p step) bool {
		switch {
		case b.every:
			return true
		case b.where != nil:
			return p.where != nil && b.where.value == p.where.value && slices.Equal(b.where.path, p.where.path)
		}
		return !p.every && p.where == nil && b.name == p.name
	})
}
