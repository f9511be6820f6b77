package redaction

// isPublic lists the labels and annotations of a Secret that stay readable. By definition, the
// values of these well-known names are names, versions, times, or switches. docs/events.md lists
// them.
var isPublic = map[string]bool{
	// https://kubernetes.io/docs/reference/labels-annotations-taints/
	"app.kubernetes.io/component":                  true,
	"app.kubernetes.io/created-by":                 true,
	"app.kubernetes.io/instance":                   true,
	"app.kubernetes.io/managed-by":                 true,
	"app.kubernetes.io/name":                       true,
	"app.kubernetes.io/part-of":                    true,
	"app.kubernetes.io/version":                    true,
	"kubernetes.io/legacy-token-invalid-since":     true,
	"kubernetes.io/legacy-token-last-used":         true,
	"kubernetes.io/service-account.name":           true,
	"kubernetes.io/service-account.uid":            true,
	"addonmanager.kubernetes.io/mode":              true,
	"argocd.argoproj.io/instance":                  true, // https://argo-cd.readthedocs.io/en/stable/user-guide/resource_tracking/
	"argocd.argoproj.io/secret-type":               true, // https://argo-cd.readthedocs.io/en/stable/operator-manual/declarative-setup/
	"cert-manager.io/alt-names":                    true, // https://cert-manager.io/docs/reference/annotations/
	"cert-manager.io/certificate-name":             true,
	"cert-manager.io/common-name":                  true,
	"cert-manager.io/ip-sans":                      true,
	"cert-manager.io/issuer-group":                 true,
	"cert-manager.io/issuer-kind":                  true,
	"cert-manager.io/issuer-name":                  true,
	"cert-manager.io/uri-sans":                     true,
	"controller.cert-manager.io/fao":               true,
	"cluster.x-k8s.io/cluster-name":                true, // https://cluster-api.sigs.k8s.io/reference/labels-and-annotations
	"helm.sh/chart":                                true, // https://helm.sh/docs/chart_best_practices/labels/
	"helm.sh/hook":                                 true, // https://helm.sh/docs/topics/charts_hooks/
	"helm.sh/resource-policy":                      true,
	"meta.helm.sh/release-name":                    true,
	"meta.helm.sh/release-namespace":               true,
	"helm.toolkit.fluxcd.io/name":                  true, // https://fluxcd.io/flux/components/helm/helmreleases/
	"helm.toolkit.fluxcd.io/namespace":             true,
	"kustomize.toolkit.fluxcd.io/name":             true, // https://fluxcd.io/flux/components/kustomize/kustomizations/
	"kustomize.toolkit.fluxcd.io/namespace":        true,
	"reconcile.external-secrets.io/managed":        true, // https://external-secrets.io/latest/api/externalsecret/
	"sealedsecrets.bitnami.com/sealed-secrets-key": true, // https://github.com/bitnami-labs/sealed-secrets
	"strimzi.io/cluster":                           true, // https://strimzi.io/docs/operators/latest/configuring
	"strimzi.io/kind":                              true,
	"strimzi.io/name":                              true,
}
