{{- define "kuberelay.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "kuberelay.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- $name := include "kuberelay.name" . }}
{{- if contains $name .Release.Name }}
{{- .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}
{{- end }}

{{- define "kuberelay.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "kuberelay.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{/* clusterName is for what is not in the release's namespace: two releases of one name do not share it. */}}
{{- define "kuberelay.clusterName" -}}
{{- printf "%s-%s" .Release.Namespace (include "kuberelay.fullname" .) }}
{{- end }}

{{- define "kuberelay.selectorLabels" -}}
app.kubernetes.io/name: {{ include "kuberelay.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- define "kuberelay.labels" -}}
{{- include "kuberelay.labelsAnd" (list . dict) }}
{{- end }}

{{/* labelsAnd is the labels and, of a list of the root and more labels, these too. Each is there once: the chart's own win, since others select by them, and then those in the list. */}}
{{- define "kuberelay.labelsAnd" -}}
{{- $more := index . 1 }}
{{- with index . 0 }}
{{- $own := include "kuberelay.selectorLabels" . | fromYaml }}
{{- $_ := set $own "helm.sh/chart" (printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-") }}
{{- $_ := set $own "app.kubernetes.io/version" .Chart.AppVersion }}
{{- $_ := set $own "app.kubernetes.io/managed-by" .Release.Service }}
{{- merge $own $more .Values.commonLabels | toYaml }}
{{- end }}
{{- end }}

{{/* metadata is that of everything but what has a name or more labels of its own: name, namespace, labels. */}}
{{- define "kuberelay.metadata" -}}
name: {{ include "kuberelay.fullname" . }}
namespace: {{ .Release.Namespace }}
labels:
  {{- include "kuberelay.labels" . | nindent 2 }}
{{- end }}

{{- define "kuberelay.image" -}}
{{- $image := .Values.image }}
{{- if $image.digest -}}
{{ $image.repository }}@{{ $image.digest }}
{{- else -}}
{{ $image.repository }}:{{ default .Chart.AppVersion $image.tag }}
{{- end }}
{{- end }}
