package main

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Fields of the Prometheus operator, whose types are not in k8s.io/api.
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
		section("serviceMonitor", "A ServiceMonitor for the Prometheus operator.",
			boolean("enabled", false, "Create it."),
			texts("labels", "More labels, for the selector of Prometheus. Labels of the chart take precedence."),
			text("interval", "", "How often to scrape. Not set: the default of Prometheus."),
			text("scrapeTimeout", "", "How long a scrape may take. Not set: the default of Prometheus."),
			kubernetes[scrapeTLS]("tlsConfig", object{}, "How Prometheus verifies the certificate of the forwarder, if it serves metrics over TLS. Not set: with `config.listenTlsCertFile`, by the authorities of the system; with the self-signed certificate of `config.metricsAuth`, not at all."),
			kubernetes[[]relabeling]("relabelings", []any{}, "Relabelings of the target."),
			kubernetes[[]relabeling]("metricRelabelings", []any{}, "Relabelings of the metrics."),
		),
		section("prometheusRule", "Alerts for the Prometheus operator.",
			boolean("enabled", false, "Create them."),
			texts("labels", "More labels, for the selector of Prometheus. Labels of the chart take precedence."),
			value{
				name: "for", preset: "15m", kind: "text", description: "How long a condition must hold before an alert fires.",
				form: object{"type": "string", "pattern": "^([0-9]+(ms|s|m|h|d|w|y))+$"},
			},
			texts("alertLabels", "Labels of every alert, beside `severity`."),
			kubernetes[[]alertingRule]("extraRules", []any{}, "More rules."),
		),
		section("podDisruptionBudget", "The PodDisruptionBudget.",
			boolean("enabled", true, "Create it."),
			kubernetes[*intstr.IntOrString]("minAvailable", nil, "How many pods must stay available, instead of `maxUnavailable`. With one replica, 1 prevents its node from being drained."),
			kubernetes[*intstr.IntOrString]("maxUnavailable", 1, "How many pods may be unavailable."),
		),
	}
}
