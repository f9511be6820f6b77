{{/* monitorMetadata renders the metadata of an object of the Prometheus operator, from a list of the root and its values. */}}
{{- define "kuberelay.monitorMetadata" -}}
{{- $of := index . 1 }}
{{- with index . 0 }}
{{- $own := dict "labels" $of.labels "annotations" $of.annotations }}
{{- if ne (default (include "kuberelay.namespace" .) $of.namespace) (include "kuberelay.namespace" .) }}
{{- $own = merge $own (dict "namespace" $of.namespace "name" (include "kuberelay.clusterName" .)) }}
{{- end }}
{{- include "kuberelay.metadata" (list . $own) }}
{{- end }}
{{- end }}

{{/* scraped renders the selector of a monitor, from a list of the root and the values of the monitor. */}}
{{- define "kuberelay.scraped" -}}
selector:
  matchLabels:
    {{- include "kuberelay.selectorLabels" (index . 0) | nindent 4 }}
{{- if (index . 1).namespace }}
namespaceSelector:
  matchNames: [{{ include "kuberelay.namespace" (index . 0) | quote }}]
{{- end }}
{{- end }}

{{/* scrape renders an endpoint of a monitor without its credentials, from a list of the root, the values of the monitor, and the chart's own relabelings. */}}
{{- define "kuberelay.scrape" -}}
{{- $root := index . 0 }}
{{- $relabelings := index . 2 }}
port: http
path: /metrics
{{- with index . 1 }}
{{- if eq (include "kuberelay.httpTls" $root) "true" }}
scheme: https
{{- $unverified := ternary dict (dict "insecureSkipVerify" true) (eq (include "kuberelay.hasFile" (list $root "listenTlsCertFile")) "true") }}
{{- with default $unverified .tlsConfig }}
tlsConfig:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- with .interval }}
interval: {{ . }}
{{- end }}
{{- with .scrapeTimeout }}
scrapeTimeout: {{ . }}
{{- end }}
{{- with concat $relabelings .relabelings }}
relabelings:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .metricRelabelings }}
metricRelabelings:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- end }}
