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

{{/* namespace is that of the pods. */}}
{{- define "kuberelay.namespace" -}}
{{- .Values.namespaceOverride | default .Release.Namespace }}
{{- end }}

{{/* workloadName is the name of the Deployment or StatefulSet. In a label of the pods, Kubernetes appends up to 11 characters to the name of a StatefulSet, and a label can have at most 63. */}}
{{- define "kuberelay.workloadName" -}}
{{- include "kuberelay.fullname" . | trunc (ternary 52 63 (eq (include "kuberelay.builtIn" .) "true")) | trimSuffix "-" }}
{{- end }}

{{/* workload is the workload of the forwarder, in the form that kubectl accepts. */}}
{{- define "kuberelay.workload" -}}
{{- ternary "sts" "deploy" (eq (include "kuberelay.builtIn" .) "true") }}/{{ include "kuberelay.workloadName" . }}
{{- end }}

{{- define "kuberelay.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "kuberelay.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{/* clusterName is the name of objects outside the namespace of the release. Releases of one name in two namespaces do not share it. */}}
{{- define "kuberelay.clusterName" -}}
{{- printf "%s-%s" (include "kuberelay.namespace" .) (include "kuberelay.fullname" .) }}
{{- end }}

{{- define "kuberelay.selectorLabels" -}}
app.kubernetes.io/name: {{ include "kuberelay.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{/* labelsAnd renders the labels of the chart and additional ones, from a list of the root and more labels. Each label occurs once: the labels of the chart have precedence, because selectors use them, and then the order of the list decides. */}}
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

{{/* metadata renders the metadata of an object, from a list of the root and a dict of name, namespace ("" if the object is cluster-scoped), labels, and annotations, which take precedence over commonAnnotations. */}}
{{- define "kuberelay.metadata" -}}
{{- $own := index . 1 }}
{{- with index . 0 }}
name: {{ $own.name | default (include "kuberelay.fullname" .) }}
{{- with ternary $own.namespace (include "kuberelay.namespace" .) (hasKey $own "namespace") }}
namespace: {{ . }}
{{- end }}
labels:
  {{- include "kuberelay.labelsAnd" (list . (default dict $own.labels)) | nindent 2 }}
{{- with merge dict (default dict $own.annotations) (default dict .Values.commonAnnotations) }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- end }}

{{/* image is the image, from image.registry if that is set. The repository names a registry if its first part looks like a host. */}}
{{- define "kuberelay.image" -}}
{{- $image := .Values.image }}
{{- $repository := $image.repository }}
{{- with $image.registry }}
{{- $repository = printf "%s/%s" . (regexReplaceAll "^(localhost|[^/]*[.:][^/]*)/" $repository "") }}
{{- end }}
{{- if $image.digest -}}
{{ $repository }}@{{ $image.digest }}
{{- else -}}
{{ $repository }}:{{ default .Chart.AppVersion $image.tag }}
{{- end }}
{{- end }}
