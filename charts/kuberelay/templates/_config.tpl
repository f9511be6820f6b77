{{/* environment renders the variables of the forwarder whose value is not the default. */}}
{{- define "kuberelay.environment" -}}
{{- $config := deepCopy .Values.config }}
{{- $_ := set $config "leaderElection" (eq (include "kuberelay.elects" .) "true") }}
{{- if $config.leaderElection }}
{{- $_ := set $config "leaseName" (include "kuberelay.leaseName" .) }}
{{- end }}
{{- if and (not $config.natsMaxBytes) (eq (include "kuberelay.sizesVolume" .) "true") }}
{{- $_ := set $config "natsMaxBytes" (div (mul 3 (include "kuberelay.bytes" .Values.persistence.size)) 4) }}
{{- end }}
{{- range $v := include "kuberelay.variables" . | fromYamlArray }}
{{- $text := include "kuberelay.text" (dict "variable" $v "config" $config) }}
{{- /* env takes precedence over envFrom. With envFrom, the chart renders every variable, so that envFrom cannot set any. */}}
{{- if or $.Values.envFrom (and $text (ne $text $v.preset)) }}
- name: {{ $v.name }}
  value: {{ $text | quote }}
{{- end }}
{{- end }}
{{- end }}

{{/* text renders a value as the text of its environment variable. If the value is not set, the text is empty. */}}
{{- define "kuberelay.text" -}}
{{- $x := index .config .variable.value }}
{{- if kindIs "invalid" $x }}
{{- else if eq .variable.kind "list" }}
{{- join "," $x }}
{{- else if eq .variable.kind "number" }}
{{- int64 $x }}
{{- else if eq .variable.kind "file" }}
{{- if $x.path }}
{{- $x.path }}
{{- else if or $x.secret $x.configMap }}
{{- printf "/etc/kuberelay/%s/%s" .variable.value $x.key }}
{{- end }}
{{- else }}
{{- $x }}
{{- end }}
{{- end }}

{{/* list renders a value as a JSON list. The value is a list, or a string that stands for a list of one element. */}}
{{- define "kuberelay.list" -}}
{{- ternary (list .) . (kindIs "string" .) | default list | toJson }}
{{- end }}

{{/* files renders the sources of the volume that has all files of the configuration. One volume has all files, so that a certificate and its key change together. */}}
{{- define "kuberelay.files" -}}
{{- range $v := include "kuberelay.variables" . | fromYamlArray }}
{{- $x := index $.Values.config $v.value }}
{{- if and (eq $v.kind "file") $x (not $x.path) (or $x.secret $x.configMap) }}
- {{ ternary "secret" "configMap" (not (empty $x.secret)) }}:
    name: {{ $x.secret | default $x.configMap }}
    items:
      - key: {{ $x.key }}
        path: {{ $v.value }}/{{ $x.key }}
{{- end }}
{{- end }}
{{- end }}

{{/* hasFile is "true" if a file of the configuration is set, from a list of the root and its name. */}}
{{- define "kuberelay.hasFile" -}}
{{- $variable := dict "value" (index . 1) "kind" "file" }}
{{- not (empty (include "kuberelay.text" (dict "variable" $variable "config" (index . 0).Values.config))) }}
{{- end }}

{{/* readable is "true" if subscribers have credentials for the built-in server. */}}
{{- define "kuberelay.readable" -}}
{{- or (eq (include "kuberelay.hasFile" (list . "natsPasswordFile")) "true") (eq (include "kuberelay.hasFile" (list . "natsTokenFile")) "true") }}
{{- end }}

{{/* builtIn is "true" if the forwarder runs the built-in NATS server. */}}
{{- define "kuberelay.builtIn" -}}
{{- and (eq .Values.config.sink "nats") (empty .Values.config.natsUrl) }}
{{- end }}

{{/* claim is "true" if the chart creates the claim for the files of the built-in server. */}}
{{- define "kuberelay.claim" -}}
{{- and (eq (include "kuberelay.builtIn" .) "true") (not .Values.persistence.ephemeral) (empty .Values.persistence.existingClaim) }}
{{- end }}

{{/* sizesVolume is "true" if the volume for the files of the built-in server has the size persistence.size. */}}
{{- define "kuberelay.sizesVolume" -}}
{{- and (eq (include "kuberelay.builtIn" .) "true") (or .Values.persistence.ephemeral (empty .Values.persistence.existingClaim)) }}
{{- end }}

{{/* bytes converts a quantity of storage to bytes. */}}
{{- define "kuberelay.bytes" -}}
{{- $text := toString . }}
{{- $unit := regexFind "[A-Za-z]*$" $text }}
{{- $number := trimSuffix $unit $text | float64 }}
{{- range $i, $prefix := list "k" "M" "G" "T" "P" "E" }}
{{- if eq $unit $prefix }}
{{- range until (int (add1 $i)) }}{{ $number = mulf $number 1000 }}{{ end }}
{{- else if eq $unit (printf "%si" (upper $prefix)) }}
{{- range until (int (add1 $i)) }}{{ $number = mulf $number 1024 }}{{ end }}
{{- end }}
{{- end }}
{{- int64 $number }}
{{- end }}

{{/* describesClaim is "true" if its argument, .Values.persistence, has values for the created claim. */}}
{{- define "kuberelay.describesClaim" -}}
{{- $modes := .accessModes | default (list "ReadWriteOnce") }}
{{- or (not (empty .storageClass)) (not (empty .annotations)) (eq (toString .whenDeleted) "Delete") (ne (.size | default "8Gi") "8Gi") (ne (join "," $modes) "ReadWriteOnce") }}
{{- end }}

{{/* elects is "true" if the forwarders elect a leader: by default, if they share a bus. */}}
{{- define "kuberelay.elects" -}}
{{- if kindIs "invalid" .Values.config.leaderElection }}
{{- and (ne .Values.config.sink "stdout") (ne (include "kuberelay.builtIn" .) "true") }}
{{- else }}
{{- .Values.config.leaderElection }}
{{- end }}
{{- end }}

{{- define "kuberelay.replicas" -}}
{{- if kindIs "invalid" .Values.replicas }}
{{- ternary 2 1 (eq (include "kuberelay.elects" .) "true") }}
{{- else }}
{{- int .Values.replicas }}
{{- end }}
{{- end }}

{{/* openshift is "true" on OpenShift. */}}
{{- define "kuberelay.openshift" -}}
{{- if kindIs "invalid" .Values.openshift }}
{{- .Capabilities.APIVersions.Has "security.openshift.io/v1" }}
{{- else }}
{{- .Values.openshift }}
{{- end }}
{{- end }}

{{- define "kuberelay.leaseName" -}}
{{- .Values.config.leaseName | default (include "kuberelay.fullname" .) }}
{{- end }}

{{/* several is "true" if the forwarder copies several clusters. */}}
{{- define "kuberelay.several" -}}
{{- not (empty (or .Values.config.kubeconfigContexts .Values.config.kubeconfigDir .Values.config.clusterApi)) }}
{{- end }}

{{/*
heldLease is the name of the Lease in this cluster that the leader holds. It is empty without leader election,
and if the forwarder copies several clusters but not this one. For several clusters, the name is the one that
leaseName in internal/fleet computes.
*/}}
{{- define "kuberelay.heldLease" -}}
{{- $config := .Values.config }}
{{- $lease := include "kuberelay.leaseName" . }}
{{- $cluster := $config.clusterApiManagementName }}
{{- $name := printf "%s-%s" $lease $cluster }}
{{- $label := "[a-z0-9]([-a-z0-9]*[a-z0-9])?" }}
{{- if ne (include "kuberelay.elects" .) "true" }}
{{- else if ne (include "kuberelay.several" .) "true" }}
{{- $lease }}
{{- else if not $cluster }}
{{- else if and (le (len $name) 253) (regexMatch (printf "^%s(\\.%s)*$" $label $label) $name) }}
{{- $name }}
{{- else }}
{{- printf "%s-%s-%s" $lease (lower $cluster | replace "_" "-" | replace "." "-" | trunc 100) (sha256sum $cluster | trunc 8) }}
{{- end }}
{{- end }}

{{- define "kuberelay.leaseNamespace" -}}
{{- .Values.config.leaseNamespace | default (include "kuberelay.namespace" .) }}
{{- end }}

{{/* natsPort is the port of the built-in server if other pods can reach it. */}}
{{- define "kuberelay.natsPort" -}}
{{- $address := .Values.config.natsListen }}
{{- if and (eq (include "kuberelay.builtIn" .) "true") (not (regexMatch "^(127\\.[0-9.]+|localhost|\\[::1\\]):" $address)) }}
{{- regexFind "[0-9]+$" $address }}
{{- end }}
{{- end }}

{{/* httpTls is "true" if metrics and health are served over TLS. */}}
{{- define "kuberelay.httpTls" -}}
{{- or .Values.config.metricsAuth (eq (include "kuberelay.hasFile" (list . "listenTlsCertFile")) "true") }}
{{- end }}

{{- define "kuberelay.httpPort" -}}
{{- regexFind "[0-9]+$" .Values.config.listenAddr }}
{{- end }}

{{/* busPorts is the list of the ports of an external bus. */}}
{{- define "kuberelay.busPorts" -}}
{{- $ports := list }}
{{- $config := .Values.config }}
{{- if eq $config.sink "nats" }}
{{- range include "kuberelay.list" $config.natsUrl | fromJsonArray }}
{{- $scheme := regexFind "^[a-z]+" . }}
{{- $port := regexFind ":[0-9]+/?$" . | trimPrefix ":" | trimSuffix "/" }}
{{- $ports = append $ports (int (default (get (dict "ws" 80 "wss" 443 "nats" 4222 "tls" 4222) $scheme) $port)) }}
{{- end }}
{{- else if eq $config.sink "kafka" }}
{{- range include "kuberelay.list" $config.kafkaBrokers | fromJsonArray }}
{{- $ports = append $ports (int (default "9092" (regexFind ":[0-9]+$" . | trimPrefix ":"))) }}
{{- end }}
{{- end }}
{{- if ne (include "kuberelay.builtIn" .) "true" }}
{{- range .Values.networkPolicy.busPorts }}
{{- $ports = append $ports (int .) }}
{{- end }}
{{- end }}
{{- $ports | uniq | toJson }}
{{- end }}
