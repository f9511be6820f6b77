{{/* alerts renders the alerts as a list, without labels, from the root. Each alert has a heading in docs/troubleshooting.md, a case in test/chart/alert_cases_test.go, and a fault in test/e2e/alerts_test.go. With "wait", the condition must hold for prometheusRule.for. The label cluster exists only if a forwarder copies several clusters. */}}
{{- define "kuberelay.alerts" -}}
{{- $rule := .Values.prometheusRule }}
{{- $of := printf "namespace=%q,service=%q" (include "kuberelay.namespace" .) (include "kuberelay.fullname" .) }}
{{- $bus := .Values.config.sink }}
{{- $ready := ternary "kuberelay_kafka_ready" "kuberelay_nats_connected" (eq $bus "kafka") }}
{{- $thresholds := mergeOverwrite (dict "lagSeconds" 60 "unsentSeconds" 60 "consistencySeconds" 900 "memoryPercent" 95) (default dict $rule.thresholds) }}
- alert: KuberelayDown
  severity: critical
  wait: true
  expr: 'absent(up{ {{- $of -}} } == 1)'
  summary: No forwarder is running.
  description: The bus gets no changes. When a forwarder runs again, it publishes everything that changed.
{{- if ne $bus "stdout" }}
{{- /* The second part means that the bus is connected and acknowledges nothing. While it acknowledges events of any cluster, one object that cannot be published does not trigger the alert. */}}
- alert: KuberelayBusAway
  severity: critical
  wait: true
  expr: 'max by (cluster) ({{ $ready }}{ {{- $of -}} }) == 0 or (max by (cluster) (kuberelay_oldest_unsent_change_seconds{ {{- $of -}} }) > 60 unless on () sum(increase(kuberelay_events_published_total{ {{- $of -}} }[5m])) > 0)'
  summary: {{ ternary "Kafka cannot be reached or acknowledges nothing, or another forwarder has taken over." "NATS cannot be reached, or acknowledges nothing." (eq $bus "kafka") }}
  description: Nothing is lost, but no change reaches the bus. The forwarder's log says why.
- alert: KuberelayPublishRejected
  severity: warning
  wait: true
  expr: 'sum by (result) (increase(kuberelay_{{ $bus }}_publishes_total{ {{- $of }},result=~"denied|error|full|no_stream|timeout"}[5m])) > 0'
  summary: {{ print "The bus keeps refusing events: {{ $labels.result }}." | quote }}
  description: The objects stay in the queue, and the forwarder retries them. The forwarder's log has the response of the bus.
{{- end }}
{{- if eq (include "kuberelay.elects" .) "true" }}
- alert: KuberelayNobodyLeads
  severity: critical
  wait: true
  expr: 'max by (cluster) (kuberelay_leader{ {{- $of -}} }) == 0'
  summary: No forwarder holds the lease.
  description: The bus gets no changes. Each forwarder's /readyz and log say why the forwarder cannot acquire the lease.
{{- end }}
- alert: KuberelayBehind
  severity: warning
  expr: 'min_over_time(kuberelay_oldest_unsent_change_seconds{ {{- $of -}} }[{{ $rule.for }}]) > {{ $thresholds.unsentSeconds }}'
  summary: {{ print "For the last " $rule.for ", the oldest unpublished change has been at least {{ $value | humanizeDuration }} old." | quote }}
  description: The bus accepts changes too slowly, or refuses an object. The forwarder's log names a refused object.
- alert: KuberelayInformerDegraded
  severity: warning
  wait: true
  expr: 'max by (resource, reason) (kuberelay_informer_state{ {{- $of -}} ,state="degraded"}) == 1'
  summary: {{ print "{{ $labels.resource }} cannot be watched: {{ $labels.reason }}." | quote }}
  description: The resource's objects stay on the bus, but their changes are not published. `forwarder resources` shows why.
- alert: KuberelayDiscoveryFailing
  severity: warning
  wait: true
  expr: 'max by (group) (kuberelay_discovery_failing{ {{- $of -}} }) == 1'
  summary: {{ print "Discovery of the API group {{ $labels.group }} fails." | quote }}
  description: The forwarder does not find new resources in the group, or notice that resources were removed. Usually, the back end of an APIService is unreachable.
- alert: KuberelayConsistencyPointOld
  severity: warning
  expr: 'max by (resource) (kuberelay_resolved_age_seconds{ {{- $of -}} }) > {{ $thresholds.consistencySeconds }}{{ if ne $bus "stdout" }} and on () max({{ $ready }}{ {{- $of -}} }) == 1{{ end }}'
  summary: {{ print "The copy of {{ $labels.resource }} was last known to be complete {{ $value | humanizeDuration }} ago." | quote }}
  description: A change does not reach the bus, or the watch of the resource hangs.
- alert: KuberelaySlow
  severity: warning
  wait: true
  expr: 'histogram_quantile(0.99, sum by (le) (rate(kuberelay_end_to_end_lag_seconds_bucket{ {{- $of -}} }[5m]))) > {{ $thresholds.lagSeconds }}'
  summary: {{ print "1% of changes take longer than {{ $value | humanizeDuration }} to reach the bus." | quote }}
  description: The API server, the forwarder or the bus is slow, or their clocks differ. kuberelay_event_lag_seconds measures the forwarder and the bus only.
- alert: KuberelayObjectTruncated
  severity: warning
  expr: '{{ include "kuberelay.grew" (list "kuberelay_events_truncated_total" $of) }}'
  summary: {{ print "Objects of {{ $labels.resource }} are too large for the bus." | quote }}
  description: Their events contain only the metadata. The forwarder's log names the objects.
- alert: KuberelayFilterFailing
  severity: warning
  expr: '{{ include "kuberelay.grew" (list "kuberelay_filter_errors_total" $of) }}'
  summary: {{ print "KUBERELAY_FILTER fails for objects of {{ $labels.resource }}." | quote }}
  description: These objects are published anyway. The forwarder's log names the part of the expression that fails.
{{- if ne $bus "stdout" }}
- alert: KuberelayBusLostEvents
  severity: warning
  expr: 'sum(increase(kuberelay_bus_lost_total{ {{- $of -}} }[15m])) > 0'
  summary: The bus has lost events that it acknowledged.
  description: The forwarder publishes the current states of these objects again. Subscribers might have missed other events.
{{- end }}
- alert: KuberelayForeignEvents
  severity: warning
  expr: 'sum(increase(kuberelay_foreign_events_total{ {{- $of -}} }[15m])) > 0'
  summary: Another writer publishes events of objects.
  description: The forwarder has published the state of these objects again. Subscribers have received both the foreign events and the repairs.
- alert: KuberelayInvalidMessages
  severity: warning
  expr: 'sum by (reason) (increase(kuberelay_invalid_messages_total{ {{- $of -}} }[15m])) > 0'
  summary: {{ print "Messages on the bus are not Kuberelay events: {{ $labels.reason }}." | quote }}
  description: The forwarder ignores them. Something else writes to the stream or topic.
{{- if eq $bus "nats" }}
- alert: KuberelayAnotherWriter
  severity: warning
  wait: true
  expr: 'sum(increase(kuberelay_nats_publishes_total{ {{- $of -}} ,result=~"already_stored|conflict"}[5m])) > 0'
  summary: Publishes keep conflicting with events that the forwarder did not expect.
  description: A second forwarder of this cluster writes to the bus, or acknowledgements are lost.
{{- else if eq $bus "kafka" }}
- alert: KuberelayAnotherWriter
  severity: warning
  expr: 'sum(increase(kuberelay_kafka_sessions_total{ {{- $of -}} }[15m])) > 3'
  summary: The forwarder keeps starting producer sessions.
  description: A second forwarder of this cluster writes to the topics, or brokers fail.
{{- end }}
- alert: KuberelayMemoryLow
  severity: warning
  wait: true
  expr: 'max by (pod) (100 * (go_memstats_sys_bytes{ {{- $of -}} } - go_memstats_heap_released_bytes{ {{- $of -}} }) / go_gc_gomemlimit_bytes{ {{- $of -}} }) > {{ $thresholds.memoryPercent }}'
  summary: {{ print "{{ $labels.pod }} uses {{ $value | humanize }}% of its Go memory limit (GOMEMLIMIT)." | quote }}
  description: Garbage collection uses more and more CPU time, until the kernel kills the container.
- alert: KuberelayRestarting
  severity: warning
  expr: 'max by (pod) (changes(process_start_time_seconds{ {{- $of -}} }[30m])) > 2'
  summary: {{ print "{{ $labels.pod }} has restarted {{ $value }} times in 30 minutes." | quote }}
  description: The last lines of the previous container's log say why. If these lines have no error, the container might have exceeded its memory limit.
{{- end }}

{{/* grew renders the condition that a counter by resource has grown, from a list of the counter and its labels. The first increase of a resource creates the series. */}}
{{- define "kuberelay.grew" -}}
{{- $series := printf "%s{%s}" (index . 0) (index . 1) -}}
sum by (resource) (increase({{ $series }}[15m])) > 0 or (sum by (resource) ({{ $series }}) > 0 unless sum by (resource) ({{ $series }} offset 15m))
{{- end }}
