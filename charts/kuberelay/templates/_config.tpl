{{/* environment is the forwarder's variables, those only whose value is not their default. */}}
{{- define "kuberelay.environment" -}}
{{- $config := deepCopy .Values.config }}
{{- $_ := set $config "leaderElection" (eq (include "kuberelay.elects" .) "true") }}
{{- if $config.leaderElection }}
{{- $_ := set $config "leaseName" (include "kuberelay.leaseName" .) }}
{{- end }}
{{- range $v := include "kuberelay.variables" . | fromYamlArray }}
{{- $text := include "kuberelay.text" (dict "variable" $v "config" $config) }}
{{- if and $text (ne $text $v.preset) }}
- name: {{ $v.name }}
  value: {{ $text | quote }}
{{- end }}
{{- end }}
{{- end }}

{{/* text is a value as the variable wants it, nothing if there is none. */}}
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

{{/* files is the sources of the volume that all files of the configuration are in: of one volume, so that a certificate and its key change together. */}}
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

{{/* builtIn is "true" where the forwarder runs a NATS server of its own. */}}
{{- define "kuberelay.builtIn" -}}
{{- and (eq .Values.config.sink "nats") (empty .Values.config.natsUrl) }}
{{- end }}

{{/* elects is "true" where forwarders elect a leader: by default where they have a bus to share. */}}
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

{{- define "kuberelay.leaseName" -}}
{{- .Values.config.leaseName | default (include "kuberelay.fullname" .) }}
{{- end }}

{{- define "kuberelay.leaseNamespace" -}}
{{- .Values.config.leaseNamespace | default .Release.Namespace }}
{{- end }}

{{/* natsPort is the port of the built-in server if others can reach it. */}}
{{- define "kuberelay.natsPort" -}}
{{- $address := .Values.config.natsListen }}
{{- if and (eq (include "kuberelay.builtIn" .) "true") (not (regexMatch "^(127\\.[0-9.]+|localhost|\\[::1\\]):" $address)) }}
{{- regexFind "[0-9]+$" $address }}
{{- end }}
{{- end }}

{{- define "kuberelay.httpPort" -}}
{{- regexFind "[0-9]+$" .Values.config.listenAddr }}
{{- end }}

{{/* busPorts is the ports of the bus outside, as a list. */}}
{{- define "kuberelay.busPorts" -}}
{{- $ports := list }}
{{- $config := .Values.config }}
{{- if eq $config.sink "nats" }}
{{- range $config.natsUrl }}
{{- $scheme := regexFind "^[a-z]+" . }}
{{- $port := regexFind ":[0-9]+/?$" . | trimPrefix ":" | trimSuffix "/" }}
{{- $ports = append $ports (int (default (get (dict "ws" 80 "wss" 443 "nats" 4222 "tls" 4222) $scheme) $port)) }}
{{- end }}
{{- else if eq $config.sink "kafka" }}
{{- range $config.kafkaBrokers }}
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

{{/* duration is a duration in nanoseconds. */}}
{{- define "kuberelay.duration" -}}
{{- (mustDateModify (printf "+%s" .) (toDate "2006-01-02T15:04:05Z07:00" "1970-01-01T00:00:00Z")).UnixNano }}
{{- end }}

{{/* validate fails on what the schema cannot say, and the forwarder would only when it runs. */}}
{{- define "kuberelay.validate" -}}
{{- $config := .Values.config }}
{{- $elects := eq (include "kuberelay.elects" .) "true" }}
{{- $builtIn := eq (include "kuberelay.builtIn" .) "true" }}
{{- if and $elects $builtIn }}
{{- fail "config.leaderElection: each forwarder would have a built-in NATS server of its own; set config.natsUrl to one that they share" }}
{{- end }}
{{- if and (gt (int (include "kuberelay.replicas" .)) 1) (not $elects) }}
{{- fail (ternary "replicas: more than one forwarder would each have a built-in NATS server of its own; set config.natsUrl to one that they share" "replicas: more than one forwarder would each publish everything; set config.leaderElection=true" $builtIn) }}
{{- end }}
{{- if empty $config.resources }}
{{- fail "config.resources: name at least one resource to watch, such as --set 'config.resources={pods,deployments.apps}'" }}
{{- end }}
{{- if and (eq $config.sink "kafka") (empty $config.kafkaBrokers) }}
{{- fail "config.kafkaBrokers: config.sink is kafka; name the brokers, such as kafka-0:9092" }}
{{- end }}
{{- if and (eq $config.sink "nats") $config.kafkaBrokers }}
{{- fail "config.kafkaBrokers: config.sink is nats; set config.sink=kafka as well, or unset this" }}
{{- end }}
{{- range $v := include "kuberelay.variables" . | fromYamlArray }}
{{- $x := index $config $v.value }}
{{- if and (eq $v.kind "file") $x }}
{{- if gt (len (compact (list $x.secret $x.configMap $x.path))) 1 }}
{{- fail (printf "config.%s: only one of secret, configMap and path can be used" $v.value) }}
{{- end }}
{{- if and (or $x.secret $x.configMap) (not $x.key) }}
{{- fail (printf "config.%s.key: say which key of %s holds it" $v.value ($x.secret | default $x.configMap)) }}
{{- end }}
{{- end }}
{{- end }}
{{- if $builtIn }}
{{- range $name := list "natsUser" "natsPasswordFile" "natsTokenFile" "natsCredsFile" "natsNkeyFile" "natsTlsCaFile" "natsTlsCertFile" "natsTlsKeyFile" }}
{{- if include "kuberelay.text" (dict "variable" (dict "value" $name "kind" (ternary "text" "file" (eq $name "natsUser"))) "config" $config) }}
{{- fail (printf "config.%s: the built-in NATS server takes neither credentials nor TLS; set config.natsUrl as well, or unset this" $name) }}
{{- end }}
{{- end }}
{{- if gt (int64 $config.natsReplicas) 1 }}
{{- fail "config.natsReplicas: the built-in NATS server is only one; set config.natsUrl to a cluster of servers, or unset this" }}
{{- end }}
{{- end }}
{{- $lease := include "kuberelay.duration" $config.leaseDuration | int64 }}
{{- $deadline := include "kuberelay.duration" $config.leaseRenewDeadline | int64 }}
{{- $retry := include "kuberelay.duration" $config.leaseRetryPeriod | int64 }}
{{- if mod $lease 1000000000 }}
{{- fail "config.leaseDuration: a Lease counts whole seconds; write it without a fraction" }}
{{- end }}
{{- if ge (add $deadline $retry) $lease }}
{{- fail (printf "config.leaseDuration: too short: it must be more than config.leaseRenewDeadline and config.leaseRetryPeriod together, which are %s and %s" $config.leaseRenewDeadline $config.leaseRetryPeriod) }}
{{- end }}
{{- if lt $deadline (mul 2 $retry) }}
{{- fail (printf "config.leaseRenewDeadline: less than twice config.leaseRetryPeriod, which is %s: one renewal that fails would end the leadership; write more" $config.leaseRetryPeriod) }}
{{- end }}
{{- if ge (include "kuberelay.duration" $config.drainTimeout | int64) (mul 1000000000 (int64 .Values.terminationGracePeriodSeconds)) }}
{{- fail (printf "config.drainTimeout: the pod would be killed before %s have passed; raise terminationGracePeriodSeconds above it, or shorten this" $config.drainTimeout) }}
{{- end }}
{{- if and (not .Values.rbac.clusterIdentity) .Values.rbac.create (not $config.clusterName) }}
{{- fail "config.clusterName: it is needed where rbac.clusterIdentity is false, since the cluster's own name cannot be read then" }}
{{- end }}
{{- range .Values.extraEnv }}
{{- if hasPrefix "KUBERELAY_" .name }}
{{- fail (printf "extraEnv: %s has a value of its own in config" .name) }}
{{- end }}
{{- end }}
{{- end }}
