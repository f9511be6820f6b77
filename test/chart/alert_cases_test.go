package chart

import "fmt"

// alertCase lists series with which an alert fires at the end, and series with which it doesn't
// fire. Each series has one value a minute for about half an hour. "{of" stands for the forwarders'
// labels.
type alertCase struct {
	alert   string
	firing  [][]string
	quiet   [][]string
	labels  map[string]string // the alert's labels, without the severity
	summary string            // "" if the summary contains no value from the series
}

const (
	natsConnected = "kuberelay_nats_connected{of} 1x40"
	oneEvent      = "0x20 1x20"
)

func alertCases() []alertCase {
	pod := map[string]string{"pod": "a"}
	return []alertCase{
		{
			alert:  "KuberelayDown",
			firing: [][]string{{"up{of} 0x40"}, {`up{namespace="kuberelay",service="another"} 1x40`}},
			quiet:  [][]string{{"up{of} 1x40"}, {"up{of} 0x14 1x1 0x30"}, {`up{of,pod="a"} 0x40`, `up{of,pod="b"} 1x40`}},
		},
		{
			alert:  "KuberelayBusAway",
			firing: [][]string{{"kuberelay_nats_connected{of} 0x40"}, {natsConnected, "kuberelay_oldest_unsent_change_seconds{of} 120x40", `kuberelay_events_published_total{of,type="created"} 7x40`}},
			quiet: [][]string{
				{`kuberelay_nats_connected{of,pod="a"} 0x40`, `kuberelay_nats_connected{of,pod="b"} 1x40`},
				{natsConnected, "kuberelay_oldest_unsent_change_seconds{of} 120x40", `kuberelay_events_published_total{of,type="created"} 0+7x40`},
				{natsConnected, "kuberelay_oldest_unsent_change_seconds{of} 59x40", `kuberelay_events_published_total{of,type="created"} 7x40`},
			},
		},
		{
			alert:  "KuberelayPublishRejected",
			firing: [][]string{{`kuberelay_nats_publishes_total{of,result="full"} 0+1x40`}},
			quiet:  [][]string{{`kuberelay_nats_publishes_total{of,result="full"} 0x20 3x20`, `kuberelay_nats_publishes_total{of,result="stored"} 0+9x40`, `kuberelay_nats_publishes_total{of,result="too_large"} 0+9x40`}},
			labels: map[string]string{"result": "full"}, summary: "The bus keeps refusing events: full.",
		},
		{
			alert:  "KuberelayNobodyLeads",
			firing: [][]string{{`kuberelay_leader{of,pod="a"} 0x40`, `kuberelay_leader{of,pod="b"} 0x40`}},
			quiet:  [][]string{{`kuberelay_leader{of,pod="a"} 0x40`, `kuberelay_leader{of,pod="b"} 1x40`}, {`kuberelay_leader{of,pod="a"} 1x20 0x20`}},
		},
		{ // a forwarder of several clusters
			alert:  "KuberelayNobodyLeads",
			firing: [][]string{{`kuberelay_leader{of,cluster="a"} 0x40`, `kuberelay_leader{of,cluster="b"} 1x40`}},
			quiet:  [][]string{{`kuberelay_leader{of,cluster="a",pod="a"} 0x40`, `kuberelay_leader{of,cluster="a",pod="b"} 1x40`}},
			labels: map[string]string{"cluster": "a"},
		},
		{
			alert: "KuberelayBusAway",
			firing: [][]string{
				{`kuberelay_nats_connected{of,cluster="a"} 0x40`, `kuberelay_nats_connected{of,cluster="b"} 1x40`},
				{
					`kuberelay_nats_connected{of,cluster="a"} 1x40`, `kuberelay_oldest_unsent_change_seconds{of,cluster="a"} 120x40`,
					`kuberelay_events_published_total{of,cluster="a",type="created"} 7x40`, `kuberelay_events_published_total{of,cluster="b",type="created"} 7x40`,
				},
			},
			quiet: [][]string{
				{`kuberelay_nats_connected{of,cluster="a",pod="a"} 0x40`, `kuberelay_nats_connected{of,cluster="a",pod="b"} 1x40`},
				{ // another cluster publishes to the same bus
					`kuberelay_nats_connected{of,cluster="a"} 1x40`, `kuberelay_oldest_unsent_change_seconds{of,cluster="a"} 120x40`,
					`kuberelay_events_published_total{of,cluster="a",type="created"} 7x40`, `kuberelay_events_published_total{of,cluster="b",type="created"} 0+7x40`,
				},
			},
			labels: map[string]string{"cluster": "a"},
		},
		{
			alert:  "KuberelayBehind",
			firing: [][]string{{`kuberelay_oldest_unsent_change_seconds{of,pod="a"} 0x10 90x30`}},
			quiet:  [][]string{{`kuberelay_oldest_unsent_change_seconds{of,pod="a"} 90x20 2 90x20`}, {`kuberelay_oldest_unsent_change_seconds{of,pod="a"} 5x40`, `kuberelay_dirty_objects{of,pod="a"} 50x40`}},
			labels: map[string]string{"namespace": "kuberelay", "service": "kr-kuberelay", "pod": "a"}, summary: "For the last 15m, the oldest unpublished change has been at least 1m 30s old.",
		},
		{
			alert:  "KuberelayInformerDegraded",
			firing: [][]string{{`kuberelay_informer_state{of,resource="pods",state="degraded",reason="forbidden"} 1x40`}},
			quiet:  [][]string{{`kuberelay_informer_state{of,resource="pods",state="synced",reason=""} 1x40`}, {`kuberelay_informer_state{of,resource="pods",state="degraded",reason="forbidden"} 1x20 _x20`}},
			labels: map[string]string{"resource": "pods", "reason": "forbidden"}, summary: "pods cannot be watched: forbidden.",
		},
		{
			alert:  "KuberelayDiscoveryFailing",
			firing: [][]string{{`kuberelay_discovery_failing{of,group="a.example.com"} 1x40`}},
			quiet:  [][]string{{`kuberelay_discovery_failing{of,group="a.example.com"} _x20 1x20`}},
			labels: map[string]string{"group": "a.example.com"}, summary: "Discovery of the API group a.example.com fails.",
		},
		{
			alert:  "KuberelayConsistencyPointOld",
			firing: [][]string{{natsConnected, `kuberelay_resolved_age_seconds{of,resource="pods"} 0+60x40`}},
			quiet: [][]string{
				{natsConnected, `kuberelay_resolved_age_seconds{of,resource="pods"} 600x40`},
				{"kuberelay_nats_connected{of} 0x40", `kuberelay_resolved_age_seconds{of,resource="pods"} 0+60x40`},
			},
			labels: map[string]string{"resource": "pods"}, summary: "The copy of pods was last known to be complete 30m 0s ago.",
		},
		{
			alert:   "KuberelaySlow",
			firing:  [][]string{lagBuckets("0+0x40", "0+9x40")},
			quiet:   [][]string{lagBuckets("0+9x40", "0+9x40"), lagBuckets("0x20 0x20", "0x20 9x20")},
			summary: "1% of changes take longer than 1m 59s to reach the bus.",
		},
		{
			alert:  "KuberelayObjectTruncated",
			firing: [][]string{{`kuberelay_events_truncated_total{of,resource="pods"} ` + oneEvent}, {`kuberelay_events_truncated_total{of,resource="pods"} _x20 1x20`}},
			quiet:  [][]string{{`kuberelay_events_truncated_total{of,resource="pods"} 1x40`}, {`kuberelay_events_truncated_total{of,resource="pods"} _x20 0x20`}},
			labels: map[string]string{"resource": "pods"}, summary: "Objects of pods are too large for the bus.",
		},
		{
			alert:  "KuberelayFilterFailing",
			firing: [][]string{{`kuberelay_filter_errors_total{of,resource="pods"} _x20 1x20`}, {`kuberelay_filter_errors_total{of,resource="pods"} 0+1x40`}},
			quiet:  [][]string{{`kuberelay_filter_errors_total{of,resource="pods"} _x5 1x40`}},
			labels: map[string]string{"resource": "pods"}, summary: "KUBERELAY_FILTER fails for objects of pods.",
		},
		{
			alert:  "KuberelayBusLostEvents",
			firing: [][]string{{"kuberelay_bus_lost_total{of} " + oneEvent}},
			quiet:  [][]string{{"kuberelay_bus_lost_total{of} 3x40"}},
		},
		{
			alert:  "KuberelayForeignEvents",
			firing: [][]string{{"kuberelay_foreign_events_total{of} " + oneEvent}},
			quiet:  [][]string{{"kuberelay_foreign_events_total{of} 3x40"}},
		},
		{
			alert:  "KuberelayInvalidMessages",
			firing: [][]string{{`kuberelay_invalid_messages_total{of,reason="id"} ` + oneEvent}},
			quiet:  [][]string{{`kuberelay_invalid_messages_total{of,reason="id"} 3x40`}},
			labels: map[string]string{"reason": "id"}, summary: "Messages on the bus are not Kuberelay events: id.",
		},
		{
			alert:  "KuberelayAnotherWriter",
			firing: [][]string{{`kuberelay_nats_publishes_total{of,result="already_stored"} 0+1x40`}, {`kuberelay_nats_publishes_total{of,result="conflict"} 0+1x40`}},
			quiet:  [][]string{{`kuberelay_nats_publishes_total{of,result="already_stored"} 0x22 500x20`, `kuberelay_nats_publishes_total{of,result="stored"} 0+1x40`}},
		},
		{
			alert:  "KuberelayMemoryLow",
			firing: [][]string{memoryOf(99)}, quiet: [][]string{memoryOf(90)},
			labels: pod, summary: "a uses 99% of its Go memory limit (GOMEMLIMIT).",
		},
		{
			alert:  "KuberelayRestarting",
			firing: [][]string{{`process_start_time_seconds{of,pod="a"} 1x10 2x5 3x5 4x20`}},
			quiet:  [][]string{{`process_start_time_seconds{of,pod="a"} 1x10 2x10 3x20`}, {`process_start_time_seconds{of,pod="a"} 1x40`, `process_start_time_seconds{of,pod="b"} 2x40`}},
			labels: pod, summary: "a has restarted 3 times in 30 minutes.",
		},
	}
}

// kafkaCases returns the cases of the alerts that differ on Kafka.
func kafkaCases() []alertCase {
	const ready = "kuberelay_kafka_ready{of} 1x40"
	return []alertCase{
		{
			alert:  "KuberelayBusAway",
			firing: [][]string{{"kuberelay_kafka_ready{of} 0x40"}},
			quiet:  [][]string{{ready, "kuberelay_nats_connected{of} 0x40"}},
		},
		{
			alert:  "KuberelayPublishRejected",
			firing: [][]string{{`kuberelay_kafka_publishes_total{of,result="denied"} 0+1x40`}},
			quiet:  [][]string{{`kuberelay_kafka_publishes_total{of,result="not_ready"} 0+1x40`}},
			labels: map[string]string{"result": "denied"}, summary: "The bus keeps refusing events: denied.",
		},
		{
			alert:  "KuberelayConsistencyPointOld",
			firing: [][]string{{ready, `kuberelay_resolved_age_seconds{of,resource="pods"} 0+60x40`}},
			quiet:  [][]string{{"kuberelay_kafka_ready{of} 0x40", `kuberelay_resolved_age_seconds{of,resource="pods"} 0+60x40`}},
			labels: map[string]string{"resource": "pods"}, summary: "The copy of pods was last known to be complete 30m 0s ago.",
		},
		{
			alert:  "KuberelayAnotherWriter",
			firing: [][]string{{"kuberelay_kafka_sessions_total{of} 1+1x40"}},
			quiet:  [][]string{{"kuberelay_kafka_sessions_total{of} 1x22 2x20"}},
		},
	}
}

// lagBuckets returns the lag histogram. The arguments count the changes that took up to one minute
// and up to two minutes.
func lagBuckets(minute, two string) []string {
	const bucket = "kuberelay_end_to_end_lag_seconds_bucket"
	return []string{bucket + `{of,le="60"} ` + minute, bucket + `{of,le="120"} ` + two, bucket + `{of,le="+Inf"} ` + two}
}

func memoryOf(percent int) []string {
	return []string{
		fmt.Sprintf(`go_memstats_sys_bytes{of,pod="a"} %dx40`, 2*percent), fmt.Sprintf(`go_memstats_heap_released_bytes{of,pod="a"} %dx40`, percent),
		`go_gc_gomemlimit_bytes{of,pod="a"} 100x40`,
	}
}
