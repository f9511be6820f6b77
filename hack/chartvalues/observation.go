package main

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Types of the Prometheus operator, which are not in k8s.io/api.
type (
	relabeling struct {
		Action       string   `json:"action,omitempty"`
		Modulus      int64    `json:"modulus,omitempty"`
		Regex        string   `json:"regex,omitempty"`
		Replacement  string   `json:"replacement,omitempty"`
		Separator    string   `json:"separator,omitempty"`
		SourceLabels []string `json:"sourceLabels,omitempty"`
		TargetLabel  string   `json:"targetLabel,omitempty"`
	}
	scrapeTLS struct {
		CA                 *caSource `json:"ca,omitempty"`
		ServerName         string    `json:"serverName,omitempty"`
		InsecureSkipVerify bool      `json:"insecureSkipVerify,omitempty"`
	}
	caSource struct {
		ConfigMap *corev1.ConfigMapKeySelector `json:"configMap,omitempty"`
		Secret    *corev1.SecretKeySelector    `json:"secret,omitempty"`
	}
	alertingRule struct {
		Alert         string            `json:"alert,omitempty"`
		Record        string            `json:"record,omitempty"`
		Expr          string            `json:"expr"`
		For           string            `json:"for,omitempty"`
		KeepFiringFor string            `json:"keep_firing_for,omitempty"`
		Labels        map[string]string `json:"labels,omitempty"`
		Annotations   map[string]string `json:"annotations,omitempty"`
	}
)

func observation() []value {
	return []value{
		section("serviceMonitor", "A ServiceMonitor for the Prometheus operator.", slices.Concat(placement("ServiceMonitor"), scraping(
			"Not set: Prometheus uses the system's certificate authorities if `config.listenTlsCertFile` is set. Prometheus doesn't verify the self-signed certificate of `config.metricsAuth`."))...),
		section("podMonitor", "A PodMonitor for the Prometheus operator, instead of the ServiceMonitor. Its targets get the label `service`, so that the same alerts work.",
			slices.Concat(placement("PodMonitor"), scraping("Not set: as with the ServiceMonitor."), []value{
				section("bearerTokenSecret", "The token that Prometheus sends. `config.metricsAuth` requires it, because a PodMonitor can't name a file.",
					text("name", "", "Name of an existing Secret with the token, in the namespace of the PodMonitor."),
					text("key", "token", "Key of the token in the Secret."),
				),
			})...),
		section("prometheusRule", "Alerts for the Prometheus operator.", slices.Concat(placement("PrometheusRule"), []value{
			{
				name: "for", preset: "15m", kind: "text", description: "How long a condition must hold before an alert fires.",
				form: object{"type": "string", "pattern": "^([0-9]+(ms|s|m|h|d|w|y))+$"},
			},
			section("alerts", "The alerts. `false` turns an alert off.",
				boolean("KuberelayDown", true, "No forwarder is running."),
				boolean("KuberelayBusAway", true, "The bus is unreachable, or acknowledges nothing."),
				boolean("KuberelayNobodyLeads", true, "No forwarder holds the Lease."),
				boolean("KuberelayBehind", true, "The oldest unpublished change has been too old for the whole period of `for`."),
				boolean("KuberelayInformerDegraded", true, "A resource can't be watched."),
				boolean("KuberelayPublishRejected", true, "The bus keeps refusing events."),
				boolean("KuberelayDiscoveryFailing", true, "Discovery of an API group fails."),
				boolean("KuberelayConsistencyPointOld", true, "No consistency point has recently confirmed that the copy of a resource is complete."),
				boolean("KuberelaySlow", true, "1% of changes take too long to reach the bus."),
				boolean("KuberelayObjectTruncated", true, "An object is too large for the bus."),
				boolean("KuberelayFilterFailing", true, "`config.filter` fails for objects."),
				boolean("KuberelayBusLostEvents", true, "The bus has lost events that it acknowledged."),
				boolean("KuberelayForeignEvents", true, "Another writer publishes events of objects."),
				boolean("KuberelayInvalidMessages", true, "Messages on the bus are not events."),
				boolean("KuberelayAnotherWriter", true, "A second forwarder of this cluster writes to the bus."),
				boolean("KuberelayMemoryLow", true, "Memory usage is near the limit."),
				boolean("KuberelayRestarting", true, "A forwarder keeps restarting."),
			),
			section("thresholds", "Thresholds of the alerts.",
				number("lagSeconds", 60, 86400, "KuberelaySlow: how long a change may take, from the write at the API server."),
				number("unsentSeconds", 60, 86400, "KuberelayBehind: how old the oldest unpublished change may be."),
				number("consistencySeconds", 900, 86400, "KuberelayConsistencyPointOld: how old the last consistency point may be. An API server confirms, usually every minute and at least every 10 minutes, that a watch is current."),
				number("memoryPercent", 95, 100, "KuberelayMemoryLow: how much memory the Go runtime may use, in percent of GOMEMLIMIT, which is 90% of the memory limit by default."),
			),
			text("runbookUrl", "", "URL of a page with a heading for each alert, for the annotation `runbook_url`. Not set: the project's docs/troubleshooting.md."),
			texts("alertLabels", "Labels for every alert, in addition to `severity`."),
			kubernetes[[]alertingRule]("extraRules", []any{}, "Additional rules."),
		})...),
		section("dashboards", "Dashboards for Grafana, each in a ConfigMap that Grafana's sidecar finds. Enable them in only one release, because they show the forwarders of all releases.",
			boolean("enabled", false, "Create the ConfigMaps with the dashboards."),
			text("namespace", "", "Namespace of the ConfigMaps. Not set: the namespace of the pods."),
			value{
				name: "labels", preset: object{"grafana_dashboard": "1"}, kind: "map", description: "Labels of the ConfigMaps that Grafana's sidecar looks for.",
				form: object{"type": "object", "additionalProperties": object{"type": "string"}},
			},
			texts("annotations", "Annotations of the ConfigMaps, such as `grafana_folder`."),
		),
		section("configCheck", "A pod that checks the values that the chart can't parse, before anything is installed or upgraded: `config.filter`, `dropFields`, `hashFields`, `follow`, and the selectors of labels, fields, and namespaces. The pod runs `forwarder config` without credentials, and only if one of these values is set.",
			boolean("enabled", true, "Check expressions and selectors in a pod before an installation or upgrade (docs/install.md)."),
		),
		section("helmTest", "The pod of `helm test`, which runs `forwarder status` against the Service. If metrics are served over TLS, the chart has no such pod.",
			boolean("enabled", true, "Create the pod of `helm test`."),
			value{
				name: "wait", preset: "2m", kind: "text", description: "How long to wait until the forwarder's verdict is ok.",
				form: object{"type": "string", "pattern": "^([0-9]+(ms|s|m|h))+$"},
			},
		),
		section("podDisruptionBudget", "The PodDisruptionBudget.",
			boolean("enabled", true, "Create the PodDisruptionBudget."),
			kubernetes[*intstr.IntOrString]("minAvailable", nil, "How many pods must stay available, instead of `maxUnavailable`. With one replica, 1 prevents a drain of the replica's node."),
			kubernetes[*intstr.IntOrString]("maxUnavailable", 1, "How many pods may be unavailable."),
		),
	}
}

// placement returns the values that control whether and where the chart creates an object of the
// Prometheus operator.
func placement(kind string) []value {
	return []value{
		boolean("enabled", false, "Create the "+kind+"."),
		text("namespace", "", "Namespace of the "+kind+". Not set: the namespace of the pods."),
		texts("labels", "Additional labels, for the selector of Prometheus. The chart's labels take precedence."),
		texts("annotations", "Annotations of the "+kind+"."),
	}
}

func scraping(unverified string) []value {
	return []value{
		text("interval", "", "How often to scrape. Not set: the default of Prometheus."),
		text("scrapeTimeout", "", "How long a scrape may take. Not set: the default of Prometheus."),
		kubernetes[scrapeTLS]("tlsConfig", object{}, "How Prometheus verifies the certificate of the forwarder, if it serves metrics over TLS. "+unverified),
		kubernetes[[]relabeling]("relabelings", []any{}, "Relabelings of the target."),
		kubernetes[[]relabeling]("metricRelabelings", []any{}, "Relabelings of the metrics."),
	}
}
