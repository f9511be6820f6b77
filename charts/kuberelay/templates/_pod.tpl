{{/* podTemplate is the pod template of the Deployment or StatefulSet. */}}
{{- define "kuberelay.podTemplate" -}}
{{- $builtIn := eq (include "kuberelay.builtIn" .) "true" }}
{{- $files := include "kuberelay.files" . }}
{{- $natsPort := include "kuberelay.natsPort" . }}
{{- $resources := deepCopy (default dict .Values.resources) }}
{{- $limit := dig "limits" "ephemeral-storage" "" $resources }}
{{- if and $builtIn .Values.persistence.ephemeral $limit }}
{{- /* The kubelet counts the emptyDir against the ephemeral-storage limits of the containers. */}}
{{- $_ := set $resources.limits "ephemeral-storage" (add (include "kuberelay.bytes" $limit) (include "kuberelay.bytes" .Values.persistence.size) | toString) }}
{{- end }}
{{- $scheme := ternary (dict "scheme" "HTTPS") dict (eq (include "kuberelay.httpTls" .) "true") }}
{{- $probes := include "kuberelay.probes" . | fromYaml }}
{{- range $probes }}
{{- if .httpGet }}{{ $_ := set . "httpGet" (merge .httpGet $scheme) }}{{ end }}
{{- end }}
metadata:
  labels:
    {{- include "kuberelay.labelsAnd" (list . .Values.podLabels) | nindent 4 }}
  {{- with .Values.podAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  serviceAccountName: {{ include "kuberelay.serviceAccountName" . }}
  automountServiceAccountToken: true
  {{- include "kuberelay.podSettings" . | trim | nindent 2 }}
  terminationGracePeriodSeconds: {{ .Values.terminationGracePeriodSeconds }}
  {{- with .Values.initContainers }}
  initContainers:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  containers:
    - name: forwarder
      image: {{ include "kuberelay.image" . | quote }}
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      env:
        {{- include "kuberelay.environment" . | trim | nindent 8 }}
        {{- with .Values.extraEnv }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- with .Values.envFrom }}
      envFrom:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      ports:
        - name: http
          containerPort: {{ include "kuberelay.httpPort" . }}
        {{- with $natsPort }}
        - name: nats
          containerPort: {{ . }}
        {{- end }}
      {{- with $probes }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
      resources:
        {{- toYaml $resources | nindent 8 }}
      securityContext:
        {{- toYaml .Values.securityContext | nindent 8 }}
      {{- if or $builtIn $files .Values.kubeconfigSecret .Values.extraVolumeMounts }}
      volumeMounts:
        {{- if $builtIn }}
        - name: data
          mountPath: {{ .Values.config.dataDir }}
        {{- end }}
        {{- if $files }}
        - name: files
          mountPath: /etc/kuberelay
          readOnly: true
        {{- end }}
        {{- if .Values.kubeconfigSecret }}
        - name: kubeconfigs
          mountPath: {{ .Values.config.kubeconfigDir }}
          readOnly: true
        {{- end }}
        {{- with .Values.extraVolumeMounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- end }}
    {{- with .Values.extraContainers }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- if or $builtIn $files .Values.kubeconfigSecret .Values.extraVolumes }}
  volumes:
    {{- if $builtIn }}
    - name: data
      {{- if .Values.persistence.ephemeral }}
      emptyDir:
        sizeLimit: {{ .Values.persistence.size | quote }}
      {{- else }}
      persistentVolumeClaim:
        claimName: {{ default (include "kuberelay.fullname" .) .Values.persistence.existingClaim }}
      {{- end }}
    {{- end }}
    {{- if $files }}
    - name: files
      projected:
        defaultMode: 0440
        sources:
          {{- $files | trim | nindent 10 }}
    {{- end }}
    {{- with .Values.kubeconfigSecret }}
    - name: kubeconfigs
      secret:
        secretName: {{ . }}
        defaultMode: 0440
    {{- end }}
    {{- with .Values.extraVolumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- end }}
  {{- with include "kuberelay.topologySpreadConstraints" . | fromYamlArray }}
  topologySpreadConstraints:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}

{{/* probes maps the field of each probe that is set to the probe. */}}
{{- define "kuberelay.probes" -}}
{{- range $field := list "startupProbe" "livenessProbe" "readinessProbe" }}
{{- with index $.Values $field }}
{{ dict $field . | toYaml }}
{{- end }}
{{- end }}
{{- end }}

{{/* podSettings renders the fields that every pod of the chart has. */}}
{{- define "kuberelay.podSettings" -}}
# The variables that Kubernetes sets for Services can look like variables of the forwarder.
enableServiceLinks: false
securityContext:
  {{- include "kuberelay.podSecurityContext" . | nindent 2 }}
{{- if not (kindIs "invalid" .Values.hostUsers) }}
hostUsers: {{ .Values.hostUsers }}
{{- end }}
{{- range $field := list "imagePullSecrets" "priorityClassName" "runtimeClassName" "hostAliases" "dnsConfig" "nodeSelector" "tolerations" "affinity" }}
{{- with index $.Values $field }}
{{ dict $field . | toYaml }}
{{- end }}
{{- end }}
{{- end }}

{{/* podSecurityContext renders the security context of the pod, without the user and the groups of the chart where OpenShift chooses them. */}}
{{- define "kuberelay.podSecurityContext" -}}
{{- $context := deepCopy (default dict .Values.podSecurityContext) }}
{{- if eq (include "kuberelay.openshift" .) "true" }}
{{- range list "runAsUser" "runAsGroup" "fsGroup" }}
{{- if eq (toString (get $context .)) "65532" }}{{ $_ := unset $context . }}{{ end }}
{{- end }}
{{- end }}
{{- toYaml $context }}
{{- end }}

{{/* topologySpreadConstraints renders the constraints as a list. By default, the scheduler prefers another node and another zone for each replica. */}}
{{- define "kuberelay.topologySpreadConstraints" -}}
{{- if not (kindIs "invalid" .Values.topologySpreadConstraints) }}
{{- toYaml .Values.topologySpreadConstraints }}
{{- else if gt (int (include "kuberelay.replicas" .)) 1 }}
{{- range list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
- maxSkew: 1
  topologyKey: {{ . }}
  whenUnsatisfiable: ScheduleAnyway
  labelSelector:
    matchLabels:
      {{- include "kuberelay.selectorLabels" $ | nindent 6 }}
{{- end }}
{{- else }}[]
{{- end }}
{{- end }}
