{{/* duration converts a duration to nanoseconds. */}}
{{- define "kuberelay.duration" -}}
{{- (mustDateModify (printf "+%s" .) (toDate "2006-01-02T15:04:05Z07:00" "1970-01-01T00:00:00Z")).UnixNano }}
{{- end }}

{{/*
combinations lists the values that the forwarder accepts only together (both), only with another value (with),
and of which it accepts only one (one).
*/}}
{{- define "kuberelay.combinations" -}}
both:
  - [natsUser, natsPasswordFile]
  - [natsTlsCertFile, natsTlsKeyFile]
  - [natsListenTlsCertFile, natsListenTlsKeyFile]
  - [kafkaTlsCertFile, kafkaTlsKeyFile]
  - [listenTlsCertFile, listenTlsKeyFile]
with:
  clusterName: [clusterReplaces]
  clusterApi: [clusterApiManagementName]
  natsUrl: [natsJetstreamDomain]
  kafkaIdempotent: [kafkaTransactionalId]
  kafkaTls: [kafkaTlsCaFile, kafkaTlsCertFile, kafkaTlsServerName]
  kafkaOauthTokenUrl: [kafkaOauthClientId, kafkaOauthClientSecretFile, kafkaOauthScopes, kafkaOauthAudience, kafkaOauthCaFile]
one:
  - [clusterName, kubeconfigContexts, kubeconfigDir, clusterApi]
  - [kafkaTransactionalId, kubeconfigContexts, kubeconfigDir, clusterApi]
  - [natsPasswordFile, natsTokenFile, natsCredsFile, natsNkeyFile]
  - [kafkaOauthTokenFile, kafkaOauthTokenUrl]
{{- end }}

{{/* validateCombinations checks the combinations. A switch counts as set if it is true. null means the forwarder's default. */}}
{{- define "kuberelay.validateCombinations" -}}
{{- $set := list }}
{{- range $v := include "kuberelay.variables" . | fromYamlArray }}
{{- $text := include "kuberelay.text" (dict "variable" $v "config" $.Values.config) }}
{{- if not (hasKey $.Values.config $v.value) }}{{ $text = $v.preset }}{{ end }}
{{- if not (has $text (list "" "false")) }}
{{- $set = append $set $v.value }}
{{- end }}
{{- end }}
{{- $rules := include "kuberelay.combinations" . | fromYaml }}
{{- range $rules.both }}
{{- if ne (has (first .) $set) (has (last .) $set) }}
{{- fail (printf "config.%s and config.%s: each needs the other; set both, or unset both" (first .) (last .)) }}
{{- end }}
{{- end }}
{{- range $other, $values := get $rules "with" }}
{{- range $values }}
{{- if and (has . $set) (not (has $other $set)) }}
{{- fail (printf "config.%s: it has no effect without config.%s; set that as well, or unset this" . $other) }}
{{- end }}
{{- end }}
{{- end }}
{{- range $values := $rules.one }}
{{- $found := list }}
{{- range $values }}
{{- if has . $set }}{{ $found = append $found . }}{{ end }}
{{- end }}
{{- if gt (len $found) 1 }}
{{- fail (printf "config.%s and config.%s: the forwarder accepts only one of them; unset the other" (first $found) (index $found 1)) }}
{{- end }}
{{- end }}
{{- end }}

{{/* validateSasl checks the credentials for Kafka as the forwarder does. */}}
{{- define "kuberelay.validateSasl" -}}
{{- $config := .Values.config }}
{{- $password := eq (include "kuberelay.hasFile" (list . "kafkaPasswordFile")) "true" }}
{{- if and (not $config.kafkaSaslMechanism) (or $config.kafkaUser $password) }}
{{- fail (printf "config.%s: it has no effect without a mechanism; set config.kafkaSaslMechanism as well, or unset this" (ternary "kafkaUser" "kafkaPasswordFile" (not (empty $config.kafkaUser)))) }}
{{- end }}
{{- $bearer := eq $config.kafkaSaslMechanism "OAUTHBEARER" }}
{{- $token := eq (include "kuberelay.hasFile" (list . "kafkaOauthTokenFile")) "true" }}
{{- $secret := eq (include "kuberelay.hasFile" (list . "kafkaOauthClientSecretFile")) "true" }}
{{- if and (or $token $secret $config.kafkaOauthTokenUrl $config.kafkaOauthClientId) (not $bearer) }}
{{- fail "config.kafkaSaslMechanism: kafkaOauth values have no effect without OAUTHBEARER; set config.kafkaSaslMechanism=OAUTHBEARER as well, or unset them" }}
{{- end }}
{{- if and $bearer (or $config.kafkaUser $password) }}
{{- fail "config.kafkaUser and config.kafkaPasswordFile: OAUTHBEARER uses a token instead; unset them" }}
{{- end }}
{{- if and $bearer (eq (toString $token) (toString (not (empty $config.kafkaOauthTokenUrl)))) }}
{{- fail "config.kafkaSaslMechanism: OAUTHBEARER needs either config.kafkaOauthTokenFile or config.kafkaOauthTokenUrl" }}
{{- end }}
{{- if and $config.kafkaOauthTokenUrl (not (and $config.kafkaOauthClientId $secret)) }}
{{- fail "config.kafkaOauthTokenUrl: it needs a client; set config.kafkaOauthClientId and config.kafkaOauthClientSecretFile" }}
{{- end }}
{{- $iam := eq $config.kafkaSaslMechanism "AWS_MSK_IAM" }}
{{- if and $config.kafkaAwsRegion (not $iam) }}
{{- fail "config.kafkaAwsRegion: it has no effect without AWS_MSK_IAM; set config.kafkaSaslMechanism=AWS_MSK_IAM as well, or unset this" }}
{{- end }}
{{- if and $iam (or $config.kafkaUser $password) }}
{{- fail "config.kafkaUser and config.kafkaPasswordFile: AWS_MSK_IAM uses AWS credentials instead; unset them" }}
{{- end }}
{{- if and $iam (not $config.kafkaTls) }}
{{- fail "config.kafkaSaslMechanism: AWS_MSK_IAM needs TLS; set config.kafkaTls=true" }}
{{- end }}
{{- if and $config.kafkaSaslMechanism (not $bearer) (not $iam) (not (and $config.kafkaUser $password)) }}
{{- fail "config.kafkaSaslMechanism: it needs a user and a password; set config.kafkaUser and config.kafkaPasswordFile" }}
{{- end }}
{{- if and (has $config.kafkaSaslMechanism (list "PLAIN" "OAUTHBEARER")) (not $config.kafkaTls) (not $config.allowPlaintextCredentials) }}
{{- range include "kuberelay.list" $config.kafkaBrokers | fromJsonArray }}
{{- if not (regexMatch "^(127\\.[0-9.]+|localhost|\\[?::1\\]?)(:[0-9]+)?$" .) }}
{{- fail (printf "config.kafkaSaslMechanism: the %s would cross the network in the clear; set config.kafkaTls=true, %sor allow it with config.allowPlaintextCredentials=true" (ternary "token" "password" $bearer) (ternary "" "use SCRAM-SHA-512, " $bearer)) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* validateNats checks the credentials for NATS as the forwarder does. */}}
{{- define "kuberelay.validateNats" -}}
{{- $config := .Values.config }}
{{- $secret := eq (include "kuberelay.readable" .) "true" }}
{{- if and $secret $config.natsAllowAnonymous (eq (include "kuberelay.builtIn" .) "true") }}
{{- fail "config.natsAllowAnonymous: config.natsTokenFile or config.natsPasswordFile is set as well; keep one of them" }}
{{- end }}
{{- $tls := not (empty $config.natsTlsServerName) }}
{{- range list "natsTlsCaFile" "natsTlsCertFile" }}
{{- $tls = or $tls (eq (include "kuberelay.hasFile" (list $ .)) "true") }}
{{- end }}
{{- if and $secret (not $tls) (not $config.allowPlaintextCredentials) }}
{{- range include "kuberelay.list" $config.natsUrl | fromJsonArray }}
{{- if not (regexMatch "^((tls|wss)://|(nats|ws)://(127\\.[0-9.]+|localhost|\\[::1\\])(:|/|$))" .) }}
{{- fail "config.natsUrl: the password or token would cross the network in the clear; use tls:// or wss://, set config.natsTlsCaFile, which makes TLS mandatory, or allow it with config.allowPlaintextCredentials=true" }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* validate checks what the schema cannot express, so that mistakes show before the forwarder runs. */}}
{{- define "kuberelay.validate" -}}
{{- $config := .Values.config }}
{{- $elects := eq (include "kuberelay.elects" .) "true" }}
{{- $builtIn := eq (include "kuberelay.builtIn" .) "true" }}
{{- if and $elects $builtIn }}
{{- fail "config.leaderElection: each forwarder would have its own built-in NATS server; set config.natsUrl to a server that they share" }}
{{- end }}
{{- if and (gt (int (include "kuberelay.replicas" .)) 1) (not $elects) }}
{{- fail (ternary "replicas: each forwarder would have its own built-in NATS server; set config.natsUrl to a server that they share" "replicas: without leader election, each forwarder would publish everything; set config.leaderElection=true" $builtIn) }}
{{- end }}
{{- if empty $config.resources }}
{{- fail "config.resources: name at least one resource to watch, such as --set 'config.resources={pods,deployments.apps}'" }}
{{- end }}
{{- if .Values.kubeconfigSecret }}
{{- if not $config.kubeconfigDir }}
{{- fail "kubeconfigSecret: there is no directory to mount it at; set config.kubeconfigDir, such as /etc/kuberelay-clusters" }}
{{- end }}
{{- if and (include "kuberelay.files" .) (hasPrefix "/etc/kuberelay/" (printf "%s/" $config.kubeconfigDir)) }}
{{- fail (printf "config.kubeconfigDir: %s is within /etc/kuberelay, where the files of the configuration are mounted read-only; use another directory, such as /etc/kuberelay-clusters" $config.kubeconfigDir) }}
{{- end }}
{{- end }}
{{- if and (eq $config.sink "kafka") (empty $config.kafkaBrokers) }}
{{- fail "config.kafkaBrokers: config.sink is kafka; name the brokers, such as kafka-0:9092" }}
{{- end }}
{{- if and (eq $config.sink "nats") $config.kafkaBrokers }}
{{- fail "config.kafkaBrokers: config.sink is nats; set config.sink=kafka as well, or unset this" }}
{{- end }}
{{- if eq $config.sink "kafka" }}
{{- include "kuberelay.validateSasl" . }}
{{- else if eq $config.sink "nats" }}
{{- include "kuberelay.validateNats" . }}
{{- end }}
{{- range $v := include "kuberelay.variables" . | fromYamlArray }}
{{- $x := index $config $v.value }}
{{- if and (eq $v.kind "file") $x }}
{{- if gt (len (compact (list $x.secret $x.configMap $x.path))) 1 }}
{{- fail (printf "config.%s: set only one of secret, configMap, and path" $v.value) }}
{{- end }}
{{- if and (or $x.secret $x.configMap) (not $x.key) }}
{{- fail (printf "config.%s.key: not set; name the key of %s that holds the file" $v.value ($x.secret | default $x.configMap)) }}
{{- end }}
{{- end }}
{{- if eq $v.kind "duration" }}
{{- if not (regexMatch "^(0|([0-9]+(\\.[0-9]+)?(ns|us|ms|s|m|h))+)$" (toString $x)) }}
{{- fail (printf "config.%s: %q is not a duration; write it as %s" $v.value (toString $x) $v.preset) }}
{{- end }}
{{- $d := include "kuberelay.duration" $x | int64 }}
{{- if or (lt $d (include "kuberelay.duration" $v.min | int64)) (gt $d (include "kuberelay.duration" ($v.max | default $x) | int64)) }}
{{- fail (printf "config.%s: %s is out of range; write %s" $v.value $x $v.bounds) }}
{{- end }}
{{- end }}
{{- end }}
{{- if $builtIn }}
{{- with .Values.persistence }}
{{- if and (eq (toString .enabled) "false") (not .ephemeral) }}
{{- fail "persistence.enabled: without its files, the built-in NATS server loses every delete that happens while the pod is replaced; set persistence.enabled=true to keep them on a PersistentVolumeClaim, config.natsUrl for a bus of your own, or persistence.ephemeral=true to accept the loss" }}
{{- end }}
{{- if and .ephemeral (or .enabled .existingClaim) }}
{{- fail (printf "persistence.ephemeral=true cannot be combined with persistence.%s; unset one of them" (ternary "existingClaim" "enabled" (empty .enabled))) }}
{{- end }}
{{- if and (eq (include "kuberelay.sizesVolume" $) "true") (not (regexMatch "^[0-9]+(\\.[0-9]+)?([KMGTPE]i|[kMGTPE])?$" (toString .size))) }}
{{- fail (printf "persistence.size: %q is not a size of storage; write it as 20Gi" (toString .size)) }}
{{- end }}
{{- end }}
{{- range $name := list "natsCredsFile" "natsNkeyFile" "natsTlsCertFile" "natsTlsKeyFile" }}
{{- if eq (include "kuberelay.hasFile" (list $ $name)) "true" }}
{{- fail (printf "config.%s: the built-in NATS server takes a password or a token, and its certificate is in config.natsListenTlsCertFile; set config.natsUrl as well, or unset this" $name) }}
{{- end }}
{{- end }}
{{- if include "kuberelay.natsPort" . }}
{{- if ne (include "kuberelay.readable" .) "true" }}
{{- fail "config.natsListen: anyone who reaches this address could read every object; set config.natsTokenFile, or config.natsUser and config.natsPasswordFile, or listen on 127.0.0.1" }}
{{- end }}
{{- if not (or (eq (include "kuberelay.hasFile" (list . "natsListenTlsCertFile")) "true") $config.allowPlaintextCredentials) }}
{{- fail "config.natsListen: subscribers would send the credentials over the network in the clear; set config.natsListenTlsCertFile and config.natsListenTlsKeyFile, or allow it with config.allowPlaintextCredentials=true" }}
{{- end }}
{{- end }}
{{- if and $config.natsMaxBytes (eq (include "kuberelay.sizesVolume" .) "true") (gt (int64 $config.natsMaxBytes) (include "kuberelay.bytes" .Values.persistence.size | int64)) }}
{{- fail (printf "config.natsMaxBytes: %d is more than persistence.size, %s; set a smaller value, or unset this" (int64 $config.natsMaxBytes) (toString .Values.persistence.size)) }}
{{- end }}
{{- if gt (int64 $config.natsReplicas) 1 }}
{{- fail "config.natsReplicas: the built-in NATS server is a single server; set config.natsUrl to a cluster of servers, or unset this" }}
{{- end }}
{{- end }}
{{- include "kuberelay.validateCombinations" . }}
{{- $lease := include "kuberelay.duration" $config.leaseDuration | int64 }}
{{- $deadline := include "kuberelay.duration" $config.leaseRenewDeadline | int64 }}
{{- $retry := include "kuberelay.duration" $config.leaseRetryPeriod | int64 }}
{{- if mod $lease 1000000000 }}
{{- fail "config.leaseDuration: a Lease counts whole seconds; write it without a fraction" }}
{{- end }}
{{- if ge (add $deadline $retry) $lease }}
{{- fail (printf "config.leaseDuration: %s is too short: it must be more than config.leaseRenewDeadline and config.leaseRetryPeriod together, which are %s and %s" $config.leaseDuration $config.leaseRenewDeadline $config.leaseRetryPeriod) }}
{{- end }}
{{- if lt $deadline (mul 2 $retry) }}
{{- fail (printf "config.leaseRenewDeadline: less than twice config.leaseRetryPeriod, which is %s: one failed renewal would end the leadership; use at least twice that" $config.leaseRetryPeriod) }}
{{- end }}
{{- if gt (include "kuberelay.duration" $config.retryBaseDelay | int64) (include "kuberelay.duration" $config.retryMaxDelay | int64) }}
{{- fail (printf "config.retryBaseDelay: longer than config.retryMaxDelay, which is %s; shorten this, or raise config.retryMaxDelay" $config.retryMaxDelay) }}
{{- end }}
{{- if and $config.kubeBurst (gt (int64 $config.kubeQps) (int64 $config.kubeBurst)) }}
{{- fail (printf "config.kubeQps: more than config.kubeBurst, which is %d; lower this, or raise config.kubeBurst" (int64 $config.kubeBurst)) }}
{{- end }}
{{- $drain := include "kuberelay.duration" $config.drainTimeout | int64 }}
{{- $grace := add (ceil (divf $drain 1000000000)) 10 | int64 }}
{{- if lt (int64 .Values.terminationGracePeriodSeconds) $grace }}
{{- fail (printf "terminationGracePeriodSeconds: %d is too short for config.drainTimeout=%s: closing the bus and releasing the Lease may take 10 s more; set terminationGracePeriodSeconds=%d, or shorten config.drainTimeout" (int64 .Values.terminationGracePeriodSeconds) $config.drainTimeout $grace) }}
{{- end }}
{{- if and (eq (toString .Values.hostUsers) "false") (semverCompare "<1.33.0-0" .Capabilities.KubeVersion.Version) }}
{{- fail (printf "hostUsers: Kubernetes %s ignores false; use Kubernetes 1.33 or later, or unset this" .Capabilities.KubeVersion.Version) }}
{{- end }}
{{- if and (not .Values.rbac.clusterIdentity) .Values.rbac.create (not $config.clusterName) (ne (include "kuberelay.several" .) "true") }}
{{- fail "config.clusterName: set it, because with rbac.clusterIdentity=false the forwarder cannot read the UID of the cluster" }}
{{- end }}
{{- with .Values.podMonitor }}
{{- if and .enabled $.Values.serviceMonitor.enabled }}
{{- fail "podMonitor: with the ServiceMonitor as well, every forwarder would be scraped twice; unset podMonitor.enabled or serviceMonitor.enabled" }}
{{- end }}
{{- if and .enabled $config.metricsAuth (not .bearerTokenSecret.name) }}
{{- fail "podMonitor.bearerTokenSecret.name: config.metricsAuth requires a token; name a Secret that holds one, or use serviceMonitor, which uses the token of Prometheus" }}
{{- end }}
{{- end }}
{{- with .Values.strategy }}
{{- if $builtIn }}
{{- fail "strategy: the built-in NATS server runs in a StatefulSet, which starts a pod only after the one that it replaces is gone; unset this" }}
{{- end }}
{{- if and (not $elects) (ne (toString .type) "Recreate") }}
{{- fail "strategy: without config.leaderElection, the old and the new forwarder would both publish for a moment; set strategy.type=Recreate, or unset this" }}
{{- end }}
{{- end }}
{{- range .Values.extraEnv }}
{{- if hasPrefix "KUBERELAY_" .name }}
{{- fail (printf "extraEnv: %s belongs in config, which has a value for it" .name) }}
{{- end }}
{{- end }}
{{- end }}
