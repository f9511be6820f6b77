{{/*
hookPod renders a pod that runs the forwarder once, from a list of the root and a dict: suffix of the
name, hook, args, env, and alone. alone means that the pod needs no network. No service mesh then adds a
container to the pod, because such a container would never exit. The selectors of the chart don't match the
labels of the pod. The pod has no credentials, because it runs before the objects of the release exist, and
small requests, because it runs alongside the forwarder.
*/}}
{{- define "kuberelay.hookPod" -}}
{{- $of := index . 1 }}
{{- with index . 0 }}
{{- $labels := merge (dict "app.kubernetes.io/name" (printf "%s-%s" (include "kuberelay.name" . | trunc 50) $of.suffix)) (include "kuberelay.labelsAnd" (list . dict) | fromYaml) }}
{{- $hook := dict "helm.sh/hook" $of.hook "helm.sh/hook-delete-policy" "before-hook-creation,hook-succeeded" "helm.sh/hook-output-log-policy" "hook-failed" }}
{{- if $of.alone }}
{{- $labels = merge (dict "sidecar.istio.io/inject" "false") $labels }}
{{- $hook = merge (dict "linkerd.io/inject" "disabled") $hook }}
{{- end }}
apiVersion: v1
kind: Pod
metadata:
  name: {{ include "kuberelay.fullname" . | trunc 50 | trimSuffix "-" }}-{{ $of.suffix }}
  namespace: {{ include "kuberelay.namespace" . }}
  labels:
    {{- toYaml $labels | nindent 4 }}
  annotations:
    {{- merge $hook (default dict .Values.commonAnnotations) | toYaml | nindent 4 }}
spec:
  restartPolicy: Never
  {{- if $of.alone }}
  activeDeadlineSeconds: 300
  {{- end }}
  automountServiceAccountToken: false
  {{- if not .Values.serviceAccount.create }}
  serviceAccountName: {{ include "kuberelay.serviceAccountName" . }}
  {{- end }}
  {{- include "kuberelay.podSettings" . | trim | nindent 2 }}
  containers:
    - name: forwarder
      image: {{ include "kuberelay.image" . | quote }}
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      args:
        {{- toYaml $of.args | nindent 8 }}
      env:
        # With stdout, the forwarder needs no directory for the built-in server.
        - name: KUBERELAY_SINK
          value: stdout
        {{- with $of.env }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      terminationMessagePolicy: FallbackToLogsOnError
      resources:
        requests:
          cpu: 10m
          memory: 32Mi
        limits:
          memory: 128Mi
      securityContext:
        {{- toYaml .Values.securityContext | nindent 8 }}
{{- end }}
{{- end }}
