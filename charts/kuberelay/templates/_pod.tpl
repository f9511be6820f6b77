{{/* podTemplate is the pod template of the Deployment or StatefulSet. */}}
{{- define "kuberelay.podTemplate" -}}
{{- $builtIn := eq (include "kuberelay.builtIn" .) "true" }}
{{- $files := include "kuberelay.files" . }}
{{- $natsPort := include "kuberelay.natsPort" . }}
{{- $resources := deepCopy .Values.resources }}
{{- $limit := dig "limits" "ephemeral-storage" "" $resources }}
{{- if and $builtIn .Values.persistence.ephemeral $limit }}
{{- /* The kubelet counts the emptyDir in the limit of the pod, which is that of its containers. */}}
{{- $_ := set $resources.limits "ephemeral-storage" (add (include "kuberelay.bytes" $limit) (include "kuberelay.bytes" .Values.persistence.size) | toString) }}
{{- end }}
{{- $scheme := ternary (dict "scheme" "HTTPS") dict (eq (include "kuberelay.httpTls" .) "true") }}
{{- $liveness := deepCopy .Values.livenessProbe }}
{{- $readiness := deepCopy .Values.readinessProbe }}
{{- range list $liveness $readiness }}
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
  # The variables that Kubernetes sets for Services can look like variables of the forwarder.
  enableServiceLinks: false
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  securityContext:
    {{- toYaml .Values.podSecurityContext | nindent 4 }}
  {{- if not (kindIs "invalid" .Values.hostUsers) }}
  hostUsers: {{ .Values.hostUsers }}
  {{- end }}
  terminationGracePeriodSeconds: {{ .Values.terminationGracePeriodSeconds }}
  {{- with .Values.priorityClassName }}
  priorityClassName: {{ . }}
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
      ports:
        - name: http
          containerPort: {{ include "kuberelay.httpPort" . }}
        {{- with $natsPort }}
        - name: nats
          containerPort: {{ . }}
        {{- end }}
      livenessProbe:
        {{- toYaml $liveness | nindent 8 }}
      readinessProbe:
        {{- toYaml $readiness | nindent 8 }}
      resources:
        {{- toYaml $resources | nindent 8 }}
      securityContext:
        {{- toYaml .Values.securityContext | nindent 8 }}
      {{- if or $builtIn $files .Values.extraVolumeMounts }}
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
        {{- with .Values.extraVolumeMounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- end }}
  {{- if or $builtIn $files .Values.extraVolumes }}
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
    {{- with .Values.extraVolumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- end }}
  {{- with .Values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.topologySpreadConstraints }}
  topologySpreadConstraints:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}
